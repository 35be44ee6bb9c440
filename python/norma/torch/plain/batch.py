"""BatchNorm (Ioffe and Szegedy 2015) over the tokens of a batch, as in Shen et al. 2020, Algorithm 1.

n rows (tokens); h = x, or x scaled per row and group (option scaling):

    mu           = mean(h)
    s2           = mean((h - mu)^2)
    y            = weight (h - mu) / sqrt(s2 + epsilon) + bias               option clamp: / sqrt(max(s2,
    epsilon))

    running_mean = decay running_mean + (1 - decay) mu
    running_var  = decay running_var  + (1 - decay) s2 n/(n - 1)             n/(n - 1): option
    unbiased_running

Inference: running_mean and running_var replace mu and s2.
"""
from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from ._call import Call, Page, Result, affine, average, scaled_rows


def inverse_root(square: Tensor, options: Dict[str, Any]) -> Tensor:
    """1 / sqrt(square + epsilon), or with the clamp, where the root is a constant below epsilon."""
    epsilon: float = options["epsilon"]
    if options.get("clamp"):
        return torch.where(square <= epsilon, torch.full_like(square, epsilon), square).rsqrt()
    return (square + epsilon).rsqrt()


def moments(h: Tensor, call: Call) -> Tuple[Tensor, Tensor]:
    """Mean and variance of each feature over the rows."""
    mean = call.rows.mean(h)
    return mean, call.rows.mean((h - mean).square())


def running(mean: Tensor, variance: Tensor, call: Call) -> Dict[str, Tensor]:
    """The running statistics after a batch."""
    decay, count = call.options["decay"], call.rows.count
    fresh = variance.detach()
    if call.options["unbiased_running"]:
        fresh = fresh * (count / (count - 1).clamp(min=1) if isinstance(count, Tensor) else count
                         / max(count - 1, 1))
    return {"running_mean": average(call.state["running_mean"], mean, decay),
            "running_var": average(call.state["running_var"], fresh, decay)}


def train(x: Tensor, call: Call) -> Result:
    h = scaled_rows(x, call)
    mean, variance = moments(h, call)
    return Result(affine((h - mean) * inverse_root(variance, call.options), call.params),
                  running(mean, variance, call))


def infer(x: Tensor, call: Call) -> Tensor:
    z = (scaled_rows(x, call) - call.state["running_mean"]) * inverse_root(
        call.state["running_var"], call.options
    )
    return affine(z, call.params)


page = Page("batch", train=train, infer=infer)
