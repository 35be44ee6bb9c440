"""Training-inference discrepancy of batch statistics, for any PyTorch model."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Type

import torch
from torch import Tensor, nn

from .._library import UsageError
from ._models import masks_at, padding, tokens_of
from ._module import Norm
from ._recognize import is_chosen

class SiteTID(NamedTuple):
    """TID at the input of one norm, as ratios (not in percent)."""
    site: str  #: name of the module in the model
    mean: float  #: of the mean of each feature
    variance: float  #: of the standard deviation of each feature
    quadratic_mean: float  #: of the quadratic mean that PowerNorm divides by


class _Moments(NamedTuple):
    mean: Tensor
    variance: Tensor
    square: Tensor


_TINY, _ROW_EPSILON = 1e-12, 1e-5


def _scaled(x: Tensor, groups: int) -> Tensor:
    parts = x.reshape(len(x), groups, -1)
    return (parts / (parts.square().mean(-1, keepdim=True) + _ROW_EPSILON).sqrt()).reshape(x.shape)


def _moments(x: Tensor, groups: int) -> _Moments:
    mean = x.mean(0)
    return _Moments(mean, (x - mean).square().mean(0), _scaled(x, groups).square().mean(0))


def _ratios(batch: _Moments, overall: _Moments) -> Tensor:
    sigma, psi = overall.variance.sum().sqrt() + _TINY, overall.square.sum().sqrt() + _TINY
    return torch.stack([(batch.mean - overall.mean).norm() / sigma,
                        (batch.variance.sqrt() - overall.variance.sqrt()).norm() / sigma,
                        (batch.square.sqrt() - overall.square.sqrt()).norm() / psi])


def _call(model: nn.Module, batch: Any) -> None:
    if isinstance(batch, dict):
        model(**batch)
    elif isinstance(batch, (tuple, list)):
        model(*batch)
    else:
        model(batch)


@contextlib.contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Disables dropout, and makes batch norms use batch statistics; the state of all modules is restored
    afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or (isinstance(module, Norm)
                                                                  and module.type.uses_batch):
            module.train()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for buffer, before in buffers:
            buffer.copy_(before)


def tid(model: nn.Module, loader: Iterable[Any], *, groups: int = 1,
        kinds: Optional[Iterable[Type[nn.Module]]] = None,
        where: Optional[Callable[[str, nn.Module], bool]] = None,
        forward: Optional[Callable[[nn.Module, Any], Any]] = None,
        padding_mask: Optional[Callable[[Any], Tensor]] = None) -> List[SiteTID]:
    """Training-inference discrepancy of batch statistics (Wang et al. 2022, equation 5) at the input of every
    norm of any PyTorch model, with fixed parameters, over all batches of ``loader``, which is traversed
    twice::

        mean, sigma^2   average over the batches of the mean and the variance of each feature
        mean TID        average over the batches of |batch mean - mean| / |sigma|
        variance TID    average over the batches of |batch sigma - sigma| / |sigma|

    and the same for the quadratic mean that PowerNorm divides by, of rows scaled to unit mean square per
    group.

    loader: batches; a tuple or list is the model's positional arguments, a dict its keyword arguments;
    forward: ``forward(model, batch)`` replaces that call. padding_mask: ``padding_mask(batch)`` is true at
    padding, in the shape of the norms' input without the last axis; the norms of Norma use it, too. The
    default is the mask that the model's call receives, see ``take_masks``. kinds, where: the layers, as in
    ``replace_norms``; default: LayerNorm, RMSNorm, BatchNorm1d and the norms of Norma.

    Returns one entry per layer in the order of the model. Parameters, running statistics and mode are
    unchanged. UsageError: no such layer, no batch, or a loader that can be traversed only once, such as a
    generator.
    """
    chosen = tuple(kinds) if kinds is not None else None
    sites = {name: module for name, module in model.named_modules()
             if name and is_chosen(module, chosen, nn.BatchNorm1d) and (where is None or where(name, module))}
    sums: Dict[str, List[Tensor]] = {}
    ratios: Dict[str, Tensor] = {}
    counts: Dict[str, int] = {}
    overall: Dict[str, _Moments] = {}
    mask: List[Optional[Tensor]] = [None]

    def observe(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            rows = tokens_of(module, inputs[0].detach(), mask[0]).double()
            if not len(rows):
                return
            batch = _moments(rows, groups)
            counts[name] = counts.get(name, 0) + 1
            if overall:
                ratios[name] = ratios.get(name, 0) + _ratios(batch, overall[name])
            else:
                sums[name] = [a + b for a, b in zip(sums[name], batch)] if name in sums else list(batch)
        return hook

    def traverse() -> None:
        counts.clear()
        for batch in loader:
            mask[0] = padding_mask(batch) if padding_mask else None
            with padding(model, mask[0]):
                (forward or _call)(model, batch)

    hooks = [module.register_forward_pre_hook(observe(name)) for name, module in sites.items()]
    try:
        with measuring(model), masks_at(model, sites.values()):
            traverse()
            overall = {name: _Moments(*(total / counts[name] for total in values)) for name,
                       values in sums.items()}
            traverse()
    finally:
        for hook in hooks:
            hook.remove()
    if overall and not counts or isinstance(loader, Iterator):
        raise UsageError(
            "loader is traversed twice, and has no batches the second time; give a list or a DataLoader"
        )
    if not ratios:
        raise UsageError("no norm of the model was called: no batch, or no layer of the classes " +
                         ", ".join(kind.__name__ for kind in chosen or (nn.LayerNorm, nn.BatchNorm1d, Norm)))
    return [SiteTID(name, *(float(value) / counts[name] for value in ratios[name]))
            for name in sites if name in ratios]
