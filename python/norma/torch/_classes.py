"""A class for every norm, with typed options. scripts/torch_classes.py writes this file."""
from __future__ import annotations

from typing import Any, Dict, Literal, Optional, Type, Union

import torch

from ._module import Norm


class _Fixed(Norm):
    """A norm of a fixed type. Options that are None have the default of the type or of its preset."""
    _shows_type = False

    def _create(self, type: str, width: int, groups: int, device: Any, dtype: Optional[torch.dtype],
                statistics: str, process_group: Any, given: Dict[str, Any], options: Dict[str, Any]) -> None:
        chosen = {name: value for name, value in given.items() if value is not None}
        Norm.__init__(self, type, width, groups=groups, device=device, dtype=dtype, statistics=statistics,
                      process_group=process_group, **chosen, **options)


class AdaNorm(_Fixed):
    """AdaNorm: z = (x - mean x) / (std x + eps), y = C (1 - k z) z.

    Source: Xu et al. 2019, section 4; github.com/lancopku/AdaNorm.

    Options:

    - variant (official): Standard deviation: the root of the unbiased variance, plus epsilon, as in the
      released code; or that of LayerNorm, as in the paper.
    - c (1): Constant C by which the result is multiplied.
    - k (0.1): Constant k of the factor 1 - k z.
    - epsilon (1e-5): Constant added to the standard deviation (official), or to the variance (paper).
    """

    def __init__(self, width: int, *, groups: int = 1, variant: Optional[Literal["official", "paper"]] =
                 None, c: Optional[float] = None, k: Optional[float] = None, epsilon: Optional[float] =
                 None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(variant=variant, c=c, k=k, epsilon=epsilon)
        self._create("ada", width, groups, device, dtype, statistics, process_group, given, options)


class BatchNorm(_Fixed):
    """BatchNorm: z = (x - mu) / sqrt(s2 + eps), mu and s2 of the batch; y = weight z + bias.

    Source: Ioffe and Szegedy 2015; Shen et al. 2020, Algorithm 1.

    Options:

    - preset (default): Variant of BatchNorm.
    - decay (0.95): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to the variance.
    - clamp (false): Division by sqrt(max(variance, epsilon)) instead of sqrt(variance + epsilon).
    - unbiased_running (true): Unbiased variance, divisor n - 1, in the running variance.
    - scaling (none): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    """

    def __init__(self, width: int, *, groups: int = 1, preset: Optional[Literal["default", "pn", "rbn",
                 "framework", "paper"]] = None, decay: Optional[float] = None, epsilon: Optional[float] =
                 None, clamp: Optional[bool] = None, unbiased_running: Optional[bool] = None, scaling:
                 Optional[Literal["none", "layer", "group"]] = None, device: Any = None, dtype:
                 Optional[torch.dtype] = None, statistics: str = "process", process_group: Any = None,
                 **options: Any) -> None:
        given: Dict[str, Any] = dict(preset=preset, decay=decay, epsilon=epsilon, clamp=clamp,
                                     unbiased_running=unbiased_running, scaling=scaling)
        self._create("batch", width, groups, device, dtype, statistics, process_group, given, options)


class BatchRenormalization(_Fixed):
    """Batch Renormalization: z = (x - mu) / sigma; y = weight (r z + d) + bias, r and d within limits that
    grow.

    Source: Ioffe 2017, Algorithm 1.

    Options:

    - decay (0.99): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - eps_mode (inside): Constant epsilon added to the variance, or to the standard deviation.
    - epsilon (1e-5): Constant that keeps the divisor above zero; 1e-3 is usual with eps_mode = added.
    - r_max (3): Final limit of the factor r.
    - d_max (5): Final limit of the shift d.
    - ramp_start (5000): Number of first updates with plain BatchNorm.
    - r_ramp_end (40000): Number of updates until r_max is reached.
    - d_ramp_end (25000): Number of updates until d_max is reached.
    - shorten_ramp (true): Shorter ramps in short runs: the three numbers are scaled so that r_max is
      reached after half of the planned updates at the latest.
    - scaling (none): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    """

    def __init__(self, width: int, *, groups: int = 1, decay: Optional[float] = None, eps_mode:
                 Optional[Literal["inside", "added"]] = None, epsilon: Optional[float] = None, r_max:
                 Optional[float] = None, d_max: Optional[float] = None, ramp_start: Optional[int] = None,
                 r_ramp_end: Optional[int] = None, d_ramp_end: Optional[int] = None, shorten_ramp:
                 Optional[bool] = None, scaling: Optional[Literal["none", "layer", "group"]] = None, device:
                 Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(decay=decay, eps_mode=eps_mode, epsilon=epsilon, r_max=r_max,
                                     d_max=d_max, ramp_start=ramp_start, r_ramp_end=r_ramp_end,
                                     d_ramp_end=d_ramp_end, shorten_ramp=shorten_ramp, scaling=scaling)
        self._create("renorm", width, groups, device, dtype, statistics, process_group, given, options)


class Derf(_Fixed):
    """Derf: y = weight erf(alpha x + shift) + bias.

    Source: Chen et al. 2025; github.com/zlab-princeton/Derf.

    Options:

    - alpha_init (0.5): Initial value of alpha.
    - shift_init (0): Initial value of the shift.
    """

    def __init__(self, width: int, *, groups: int = 1, alpha_init: Optional[float] = None, shift_init:
                 Optional[float] = None, device: Any = None, dtype: Optional[torch.dtype] = None,
                 statistics: str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(alpha_init=alpha_init, shift_init=shift_init)
        self._create("derf", width, groups, device, dtype, statistics, process_group, given, options)


class DyT(_Fixed):
    """DyT: y = weight tanh(alpha x) + bias.

    Source: Zhu et al. 2025, equation 1.

    Options:

    - alpha_init (0.5): Initial value of alpha.
    """

    def __init__(self, width: int, *, groups: int = 1, alpha_init: Optional[float] = None, device: Any =
                 None, dtype: Optional[torch.dtype] = None, statistics: str = "process", process_group: Any
                 = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(alpha_init=alpha_init)
        self._create("dyt", width, groups, device, dtype, statistics, process_group, given, options)


class FixNorm(_Fixed):
    """FixNorm: y = x / max(L2 norm of x, eps).

    Source: Nguyen and Chiang 2018; Nguyen and Salazar 2019, section 2.3.

    Options:

    - epsilon (1e-12): Lower bound of the L2 norm by which a row is divided.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, device: Any = None,
                 dtype: Optional[torch.dtype] = None, statistics: str = "process", process_group: Any =
                 None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon)
        self._create("fix", width, groups, device, dtype, statistics, process_group, given, options)


class GroupNorm(_Fixed):
    """GroupNorm: LayerNorm within each of G groups of features.

    Source: Wu and He 2018; Shen et al. 2020, Table 4.

    Options:

    - epsilon (1e-5): Constant added to the variance.
    - groups (0): Number of groups of features; 0: norm.groups.
    - unbiased (false): Unbiased variance, divisor d/G - 1, as in the RBN code.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, unbiased:
                 Optional[bool] = None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics:
                 str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon, unbiased=unbiased)
        self._create("group", width, groups, device, dtype, statistics, process_group, given, options)


class GroupNorm2d(_Fixed):
    """GroupNorm2d: GroupNorm with statistics over all positions of an image.

    Source: Wu and He 2018.

    Options:

    - epsilon (1e-5): Constant added to the variance.
    - groups (1): Number of groups of features; 1: LayerNorm over all features and positions of an image.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, device: Any = None,
                 dtype: Optional[torch.dtype] = None, statistics: str = "process", process_group: Any =
                 None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon)
        self._create("group2d", width, groups, device, dtype, statistics, process_group, given, options)


class LayerNorm(_Fixed):
    """LayerNorm: z = (x - mean x) / sqrt(var x + eps), y = weight z + bias.

    Source: Ba, Kiros and Hinton 2016.

    Options:

    - epsilon (1e-5): Constant added to the variance.
    - unbiased (false): Unbiased variance, divisor d - 1, as in the RBN code.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, unbiased:
                 Optional[bool] = None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics:
                 str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon, unbiased=unbiased)
        self._create("layer", width, groups, device, dtype, statistics, process_group, given, options)


class MovingAverageBatchNorm(_Fixed):
    """Moving Average BatchNorm: z = x / sqrt(v + eps), v = mean of the last 16 mean squares; y = weight r z
    + bias.

    Source: Yan et al. 2020; github.com/megvii-model/MABN.

    Options:

    - window (16): Number of updates in the moving averages.
    - warmup (lr): Number of updates that use batch statistics; lr: the warm-up of the learning rate.
    - decay (0.98): Weight of the old value in the running mean square; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to mean squares.
    - r_limit (5): Limit of the correction r, which stays between 1/r_limit and r_limit.
    - r_hold (1000): Number of updates without the correction r.
    - center_weights (false): Centering of the weights of the linear layer after the norm (pre-norm),
      computed by centering the rows of the norm's output.
    - scaling (none): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    """

    def __init__(self, width: int, *, groups: int = 1, window: Optional[int] = None, warmup:
                 Optional[Union[int, str]] = None, decay: Optional[float] = None, epsilon: Optional[float] =
                 None, r_limit: Optional[float] = None, r_hold: Optional[int] = None, center_weights:
                 Optional[bool] = None, scaling: Optional[Literal["none", "layer", "group"]] = None, device:
                 Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(window=window, warmup=warmup, decay=decay, epsilon=epsilon,
                                     r_limit=r_limit, r_hold=r_hold, center_weights=center_weights,
                                     scaling=scaling)
        self._create("mabn", width, groups, device, dtype, statistics, process_group, given, options)


class NoNorm(_Fixed):
    """no normalization: y = x.
    """

    def __init__(self, width: int, *, groups: int = 1, device: Any = None, dtype: Optional[torch.dtype] =
                 None, statistics: str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict()
        self._create("none", width, groups, device, dtype, statistics, process_group, given, options)


class PNV(_Fixed):
    """PN-V: z = h / sqrt(p + eps), p = mean h^2 of the batch; y = weight z + bias.

    Source: Shen et al. 2020, Definition 1.

    Options:

    - preset (pn): Variant of PN-V.
    - decay (0.95): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to the mean square.
    - clamp (false): Division by sqrt(max(mean square, epsilon)) instead of sqrt(mean square + epsilon).
    - scaling (group): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    """

    def __init__(self, width: int, *, groups: int = 1, preset: Optional[Literal["pn", "rbn"]] = None, decay:
                 Optional[float] = None, epsilon: Optional[float] = None, clamp: Optional[bool] = None,
                 scaling: Optional[Literal["none", "layer", "group"]] = None, device: Any = None, dtype:
                 Optional[torch.dtype] = None, statistics: str = "process", process_group: Any = None,
                 **options: Any) -> None:
        given: Dict[str, Any] = dict(preset=preset, decay=decay, epsilon=epsilon, clamp=clamp,
                                     scaling=scaling)
        self._create("pnv", width, groups, device, dtype, statistics, process_group, given, options)


class PartialRMSNorm(_Fixed):
    """Partial RMSNorm: y = scale x / (sqrt(mean x^2 of the first d/16 features) + eps).

    Source: Zhang and Sennrich 2019, section 4.

    Options:

    - fraction (0.0625): Fraction of the features that determine the root mean square, at least one feature.
    - epsilon (1e-8): Constant added to the root mean square.
    - offset (false): Learned offset per feature.
    """

    def __init__(self, width: int, *, groups: int = 1, fraction: Optional[float] = None, epsilon:
                 Optional[float] = None, offset: Optional[bool] = None, device: Any = None, dtype:
                 Optional[torch.dtype] = None, statistics: str = "process", process_group: Any = None,
                 **options: Any) -> None:
        given: Dict[str, Any] = dict(fraction=fraction, epsilon=epsilon, offset=offset)
        self._create("prms", width, groups, device, dtype, statistics, process_group, given, options)


class PowerNorm(_Fixed):
    """PowerNorm: z = h / sqrt(phi + eps), phi = running mean of mean h^2; y = weight z + bias.

    Source: Shen et al. 2020, Algorithm 2; github.com/sIncerass/powernorm.

    Options:

    - preset (official): Variant of PowerNorm: the released code, or Algorithm 2 as printed.
    - decay_forward (0.9): Weight of the old value in the running mean square; 1 - momentum of PyTorch.
    - decay_backward (0.9): Weight of the old value in the running statistic of the backward pass.
    - epsilon (1e-5): Constant added to mean squares.
    - warmup (lr): Number of updates that use batch statistics; lr: the warm-up of the learning rate (1000
      in the encoder's final norm).
    - backward_divisor (batch): Mean square by which the gradient is divided: that of the batch, or the one
      of the forward pass (running).
    - scaling (group): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    - clip (0): Limit of the absolute values of the backward statistic; 0: no limit.
    """

    def __init__(self, width: int, *, groups: int = 1, preset: Optional[Literal["official", "paper"]] =
                 None, decay_forward: Optional[float] = None, decay_backward: Optional[float] = None,
                 epsilon: Optional[float] = None, warmup: Optional[Union[int, str]] = None,
                 backward_divisor: Optional[Literal["batch", "running"]] = None, scaling:
                 Optional[Literal["none", "layer", "group"]] = None, clip: Optional[float] = None, device:
                 Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(preset=preset, decay_forward=decay_forward,
                                     decay_backward=decay_backward, epsilon=epsilon, warmup=warmup,
                                     backward_divisor=backward_divisor, scaling=scaling, clip=clip)
        self._create("power", width, groups, device, dtype, statistics, process_group, given, options)


class ProgressiveRepBN(_Fixed):
    """Progressive RepBN: y = lambda LayerNorm(x) + (1 - lambda) RepBN(x), lambda falls from 1 to 0.

    Source: Guo et al. 2024, section 3.2; github.com/xinghaochen/SLAB.

    Options:

    - preset (default): Variant of the norm.
    - token_norm (layer): Per-token norm at the beginning of the training: LayerNorm or RMSNorm.
    - token_epsilon (1e-5): Constant added to the variance or the mean square of a token.
    - warmup (0): Number of steps with the per-token norm alone; lr: the warm-up of the learning rate.
    - lambda_init (1): Weight lambda of the per-token norm after the warm-up.
    - lambda_steps (60000): Number of steps after the warm-up in which lambda falls to 0.
    - shorten_lambda (true): In runs of fewer updates than twice the warm-up and lambda_steps: lambda
      reaches 0 after half of the updates.
    - interval (1): Number of updates of one step of the warm-up and of lambda.
    - decay (0.9): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to the variance of a feature.
    - unbiased_running (true): Unbiased variance, divisor n - 1, in the running variance.
    - alpha_init (1): Initial value of alpha of RepBN.
    - weight_init (1): Initial value of the weight of RepBN.
    """

    def __init__(self, width: int, *, groups: int = 1, preset: Optional[Literal["default", "llama"]] = None,
                 token_norm: Optional[Literal["layer", "rms"]] = None, token_epsilon: Optional[float] =
                 None, warmup: Optional[Union[int, str]] = None, lambda_init: Optional[float] = None,
                 lambda_steps: Optional[int] = None, shorten_lambda: Optional[bool] = None, interval:
                 Optional[int] = None, decay: Optional[float] = None, epsilon: Optional[float] = None,
                 unbiased_running: Optional[bool] = None, alpha_init: Optional[float] = None, weight_init:
                 Optional[float] = None, device: Any = None, dtype: Optional[torch.dtype] = None,
                 statistics: str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(preset=preset, token_norm=token_norm, token_epsilon=token_epsilon,
                                     warmup=warmup, lambda_init=lambda_init, lambda_steps=lambda_steps,
                                     shorten_lambda=shorten_lambda, interval=interval, decay=decay,
                                     epsilon=epsilon, unbiased_running=unbiased_running,
                                     alpha_init=alpha_init, weight_init=weight_init)
        self._create("progressive", width, groups, device, dtype, statistics, process_group, given, options)


class RMSNorm(_Fixed):
    """RMSNorm: y = scale x / (sqrt(mean x^2) + eps).

    Source: Zhang and Sennrich 2019, equation 4.

    Options:

    - epsilon (1e-8): Constant added to the root mean square.
    - epsilon_inside (false): Constant epsilon added to the mean square instead of its root.
    - groups (1): Number of groups of features with separate mean squares.
    - gain (true): Learned gain per feature.
    - decay_to_one (false): Weight decay of the gain towards 1 instead of 0, as of models whose gain is 1
      plus a weight (Gemma).
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, epsilon_inside:
                 Optional[bool] = None, gain: Optional[bool] = None, decay_to_one: Optional[bool] = None,
                 device: Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon, epsilon_inside=epsilon_inside, gain=gain,
                                     decay_to_one=decay_to_one)
        self._create("rms", width, groups, device, dtype, statistics, process_group, given, options)


class RegularizedBatchNorm(_Fixed):
    """Regularized BatchNorm: BatchNorm; lambda d(mu, running mu) + nu d(s2, running s2) is added to the loss.

    Source: Wang et al. 2022, equation 7; github.com/wjxts/RegularizedBN.

    Options:

    - penalty (diff): Distance in the penalty: that of the released commands (diff), that of the paper
      (diff2), or relative distances (reldiff).
    - lambda (0.1): Weight of the distance of means.
    - nu (0.01): Weight of the distance of variances.
    - reference (after): Running statistics in the penalty: before or after their update with the batch.
    - scale (auto): Loss that the penalty is added to: the sum over tokens (as in the released translation
      code) or the mean; auto: sum in translation, mean in the other tasks.
    - decay (0.95): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant that keeps the divisor above zero.
    - clamp (true): Division by sqrt(max(variance, epsilon)) instead of sqrt(variance + epsilon).
    - unbiased_running (false): Unbiased variance, divisor n - 1, in the running variance.
    - scaling (none): Scaling of rows by their root mean square before the norm: none, over the row, or per
      group (head).
    """

    def __init__(self, width: int, *, groups: int = 1, penalty: Optional[Literal["diff", "diff2",
                 "reldiff"]] = None, nu: Optional[float] = None, reference: Optional[Literal["before",
                 "after"]] = None, scale: Optional[Literal["auto", "sum", "mean"]] = None, decay:
                 Optional[float] = None, epsilon: Optional[float] = None, clamp: Optional[bool] = None,
                 unbiased_running: Optional[bool] = None, scaling: Optional[Literal["none", "layer",
                 "group"]] = None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics: str
                 = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(penalty=penalty, nu=nu, reference=reference, scale=scale, decay=decay,
                                     epsilon=epsilon, clamp=clamp, unbiased_running=unbiased_running,
                                     scaling=scaling)
        self._create("rbn", width, groups, device, dtype, statistics, process_group, given, options)


class RepBN(_Fixed):
    """RepBN: z = (x - mu) / sqrt(s2 + eps), mu and s2 of the batch; y = weight z + bias + alpha x.

    Source: Guo et al. 2024, section 3.2; github.com/xinghaochen/SLAB.

    Options:

    - preset (default): Variant of RepBN.
    - decay (0.9): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to the variance.
    - unbiased_running (true): Unbiased variance, divisor n - 1, in the running variance.
    - alpha_init (1): Initial value of alpha.
    - weight_init (1): Initial value of the weight.
    """

    def __init__(self, width: int, *, groups: int = 1, preset: Optional[Literal["default", "llama"]] = None,
                 decay: Optional[float] = None, epsilon: Optional[float] = None, unbiased_running:
                 Optional[bool] = None, alpha_init: Optional[float] = None, weight_init: Optional[float] =
                 None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(preset=preset, decay=decay, epsilon=epsilon,
                                     unbiased_running=unbiased_running, alpha_init=alpha_init,
                                     weight_init=weight_init)
        self._create("repbn", width, groups, device, dtype, statistics, process_group, given, options)


class ScaleNorm(_Fixed):
    """ScaleNorm: y = g x / max(L2 norm of x, eps).

    Source: Nguyen and Salazar 2019, equation 5.

    Options:

    - epsilon (1e-5): Lower bound of the L2 norm by which a row is divided.
    - trainable (true): Learned g in every norm; false: only in a decoder's norm before the output
      projection, which classification and tagging do not have.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, trainable:
                 Optional[bool] = None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics:
                 str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon, trainable=trainable)
        self._create("scale", width, groups, device, dtype, statistics, process_group, given, options)


class SeeDNorm(_Fixed):
    """SeeDNorm: y = (tanh(x . beta) alpha + weight) x / sqrt(mean x^2 + eps).

    Source: Cai et al. 2025.

    Options:

    - epsilon (1e-6): Constant added to the mean square.
    - alpha_init (1): Initial value of alpha.
    """

    def __init__(self, width: int, *, groups: int = 1, epsilon: Optional[float] = None, alpha_init:
                 Optional[float] = None, device: Any = None, dtype: Optional[torch.dtype] = None,
                 statistics: str = "process", process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(epsilon=epsilon, alpha_init=alpha_init)
        self._create("seed", width, groups, device, dtype, statistics, process_group, given, options)


class UnifiedNormalization(_Fixed):
    """Unified Normalization: z = x / sqrt(v + eps), v = geometric mean of the last 4 mean squares; y =
    weight z + bias.

    Source: Yang et al. 2022; github.com/hikvision-research/Unified-Normalization.

    Options:

    - window_forward (4): Number of updates in the geometric mean of mean squares; 1: batch statistics.
    - window_backward (4): Number of updates in the moving average of the backward pass.
    - warmup (lr): Number of updates that use batch statistics; lr: the warm-up of the learning rate.
    - decay (0.9): Weight of the old value in the running statistics; 1 - momentum of PyTorch.
    - epsilon (1e-5): Constant added to mean squares.
    - r_limit (5): Limit of the correction r, which stays between 1/r_limit and r_limit.
    - r_hold (1000): Number of updates without the correction r.
    - outlier_filtration (false): Batch statistics for batches whose mean squares differ from those of the
      last updates.
    """

    def __init__(self, width: int, *, groups: int = 1, window_forward: Optional[int] = None,
                 window_backward: Optional[int] = None, warmup: Optional[Union[int, str]] = None, decay:
                 Optional[float] = None, epsilon: Optional[float] = None, r_limit: Optional[float] = None,
                 r_hold: Optional[int] = None, outlier_filtration: Optional[bool] = None, device: Any =
                 None, dtype: Optional[torch.dtype] = None, statistics: str = "process", process_group: Any
                 = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(window_forward=window_forward, window_backward=window_backward,
                                     warmup=warmup, decay=decay, epsilon=epsilon, r_limit=r_limit,
                                     r_hold=r_hold, outlier_filtration=outlier_filtration)
        self._create("un", width, groups, device, dtype, statistics, process_group, given, options)


class UnitNorm(_Fixed):
    """UnitNorm: y = d^(k/2) x / max(L2 norm of x, eps).

    Source: Huang, Kümmerle and Zhang 2024.

    Options:

    - k (1): Exponent k of the L2 norm d^(k/2) of the result; 1: root mean square 1, 0: L2 norm 1.
    - epsilon (1e-12): Lower bound of the L2 norm by which a row is divided.
    """

    def __init__(self, width: int, *, groups: int = 1, k: Optional[float] = None, epsilon: Optional[float] =
                 None, device: Any = None, dtype: Optional[torch.dtype] = None, statistics: str = "process",
                 process_group: Any = None, **options: Any) -> None:
        given: Dict[str, Any] = dict(k=k, epsilon=epsilon)
        self._create("unit", width, groups, device, dtype, statistics, process_group, given, options)


by_type: Dict[str, Type[Norm]] = {
    "ada": AdaNorm,
    "batch": BatchNorm,
    "renorm": BatchRenormalization,
    "derf": Derf,
    "dyt": DyT,
    "fix": FixNorm,
    "group": GroupNorm,
    "group2d": GroupNorm2d,
    "layer": LayerNorm,
    "mabn": MovingAverageBatchNorm,
    "none": NoNorm,
    "pnv": PNV,
    "prms": PartialRMSNorm,
    "power": PowerNorm,
    "progressive": ProgressiveRepBN,
    "rms": RMSNorm,
    "rbn": RegularizedBatchNorm,
    "repbn": RepBN,
    "scale": ScaleNorm,
    "seed": SeeDNorm,
    "un": UnifiedNormalization,
    "unit": UnitNorm,
}
__all__ = ["AdaNorm", "BatchNorm", "BatchRenormalization", "Derf", "DyT", "FixNorm", "GroupNorm",
           "GroupNorm2d", "LayerNorm", "MovingAverageBatchNorm", "NoNorm", "PNV", "PartialRMSNorm",
           "PowerNorm", "ProgressiveRepBN", "RMSNorm", "RegularizedBatchNorm", "RepBN", "ScaleNorm",
           "SeeDNorm", "UnifiedNormalization", "UnitNorm"]
for _kind in by_type.values():
    _kind.__module__ = "norma.torch"
