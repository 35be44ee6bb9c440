"""What the pages share: the arguments and the result of a forward pass, statistics over rows, scaling of
rows.

A page is one norm in plain PyTorch. Its functions get x, [rows, width], in the type of the computation, with
zeros at padding, and return y of that shape, without side effects. Conditions on counters are values of
tensors (``torch.where``), not branches: a graph of ``torch.compile`` or a CUDA graph contains both sides, and
no call waits for the device.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

Number = Union[int, float, Tensor]


class _SumOverProcesses(torch.autograd.Function):
    """The sum of a vector over the processes of a group; backward: the sum of its gradients."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return sum_over_processes(vector, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _SumOverProcesses.apply(grads[0].contiguous(), ctx.group), None


def sum_over_processes(vector: Tensor, group: Any) -> Tensor:
    """The sum of a vector over the processes of a group, without gradient; group None: the vector."""
    if group is None:
        return vector
    total = vector.detach().clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total, group=group)
    return total


class Rows:
    """The rows that enter batch statistics: those of x that are not padding, of all processes of
    ``group``."""

    def __init__(self, x: Tensor, kept: Optional[Tensor], group: Any) -> None:
        """kept: bool [rows, 1], false at padding; None: no padding. group: a process group; None: this
        process alone."""
        self.kept, self.group = kept, group
        self.own: Number = x.shape[0] if kept is None else kept.sum().to(x.dtype)  #: rows of this process
        self._total: Optional[Tensor] = None

    def _own_sum(self, values: Tensor) -> Tensor:
        return (values if self.kept is None else torch.where(self.kept, values,
                                                             torch.zeros_like(values))).sum(0)

    @property
    def total(self) -> Number:
        """Rows of all processes. With a group, the first ``mean`` of a call finds it."""
        if self.group is None:
            return self.own
        assert self._total is not None
        return self._total

    @property
    def count(self) -> Number:
        """The divisor of a mean: ``total``, at least 1."""
        total = self.total
        return total.clamp(min=1) if isinstance(total, Tensor) else max(total, 1)

    @property
    def any(self) -> Union[bool, Tensor]:
        """Whether there is a row: without one, the running statistics stay as they are."""
        return self.total > 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean of values, [rows, width], with gradient."""
        own = self._own_sum(values)
        if self.group is None:
            return own / self.count
        if self._total is None:  # one message with the sum
            rows = torch.as_tensor(self.own, dtype=own.dtype, device=own.device).reshape(1)
            both: Tensor = _SumOverProcesses.apply(torch.cat([own, rows]), self.group)
            self._total, own = both[-1].detach(), both[:-1]
        else:
            own = _SumOverProcesses.apply(own, self.group)
        return own / self.count


class Call(NamedTuple):
    """A forward pass of a layer."""
    params: Dict[str, Tensor]
    #: running vectors [width] or [length, width], and counters []; as before the pass
    state: Dict[str, Tensor]
    options: Dict[str, Any]  #: values of the options of the type, the preset included
    groups: int  #: groups of features, for scaling per group
    rows: Rows
    buffers: Dict[str, Tensor]  #: the tensors of ``state`` themselves, for backward passes that change them


class Result(NamedTuple):
    """Of a forward pass in training mode."""
    y: Tensor
    state: Dict[str, Tensor]  #: the vectors and counters that change
    penalty: Optional[Tensor] = None


class Page(NamedTuple):
    """A type of norm: its functions. Per-token types have ``token`` alone, the others ``train`` and
    ``infer``."""
    name: str
    token: Optional[Callable[[Tensor, Call], Tensor]] = None
    train: Optional[Callable[[Tensor, Call], Result]] = None
    infer: Optional[Callable[[Tensor, Call], Tensor]] = None
    own_backward: bool = False  #: the backward pass is a separate function, which changes running vectors


# ---- formulas that several pages have ----

def safe_root(square: Tensor) -> Tensor:
    """sqrt(square) whose gradient at 0 is 0. A NaN stays NaN, as in all conditions of these formulas."""
    zero = square <= 0
    return torch.where(zero, torch.zeros_like(square),
                       torch.where(zero, torch.ones_like(square), square).sqrt())


def grouped(x: Tensor, groups: int) -> Tensor:
    """[rows, groups, width / groups]"""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups)


def scaled_rows(x: Tensor, call: Call) -> Tensor:
    """h = x / sqrt(mean(x^2) + 1e-5), means over the row, or over each group of features (option scaling),
    whatever the norm's epsilon is, as in PowerNorm's code."""
    scaling = call.options["scaling"]
    if scaling == "none":
        return x
    parts = grouped(x, call.groups if scaling == "group" else 1)
    return (parts * (parts.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).reshape(x.shape)


def affine(z: Tensor, params: Dict[str, Tensor]) -> Tensor:
    """weight z + bias"""
    return torch.addcmul(params["bias"], params["weight"], z)


def average(old: Tensor, fresh: Tensor, decay: Number) -> Tensor:
    """decay old + (1 - decay) fresh, without gradient."""
    new: Tensor = decay * old + (1 - decay) * fresh.detach()
    return new


def into_slot(ring: Tensor, t: Tensor, value: Tensor) -> Tensor:
    """ring, [length, width], with value in the slot t mod length."""
    places = torch.arange(ring.shape[0], device=ring.device)
    return torch.where((places == t % ring.shape[0])[:, None], value, ring)


def write(buffer: Tensor, value: Tensor, rows: Number) -> None:
    """buffer = value, in a backward pass; unchanged if there were no rows, or if value has an infinity or a
    NaN, as in a step that a gradient scaler will skip."""
    value = value.detach().to(buffer.dtype).reshape(buffer.shape)
    valid = torch.isfinite(value).all()
    if isinstance(rows, Tensor):
        valid = valid & (rows > 0)
    elif rows == 0:
        return
    buffer.copy_(torch.where(valid, value, buffer))


def joined_mean(total: Tensor, rows: Number, group: Any) -> Tensor:
    """The sum ``total`` of this process over all processes, divided by their rows; for backward passes."""
    return sum_over_processes(total, group) / (rows.clamp(min=1) if isinstance(rows, Tensor)
                                               else max(rows, 1))


def warmup(options: Dict[str, Any]) -> int:
    return int(options["warmup"])


Pages = List[Page]
Tensors = Tuple[Tensor, ...]
