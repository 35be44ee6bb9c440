"""Norms by the kernels of the library, for float32 on the CPU: forward and backward passes as a function of
autograd."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _torch_ops
from .._norms import Layer

if TYPE_CHECKING:
    from ._module import Norm


class Lease:
    """A pass of a layer, returned to it with the graph of a forward pass."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.used = layer, layer.acquire_pass()
        self.counters: List[int] = []  # after the forward pass

    def __del__(self) -> None:
        self.layer.release_pass(self.used)


def run(lease: Lease, training: bool, x: Tensor, params: Sequence[Optional[Tensor]],
        state: Sequence[Tensor]) -> Tensor:
    """y of x, [..., width], contiguous; in training mode also updates the state."""
    y, layer = torch.empty_like(x), lease.layer
    if not x.numel():
        return y
    with layer.backend.lock:
        _torch_ops.load(layer, params, state)
        lease.used.forward(training, x.numel() // layer.spec.width, x.data_ptr(), y.data_ptr())
        lease.counters = layer.counter_values()
        if training:
            _torch_ops.store(layer, state)
            if len(state) > len(layer.state) + len(layer.counters):  # num_batches_tracked
                state[-1].add_(1)
    return y


def penalty(lease: Lease, training: bool, x: Tensor) -> Tensor:
    return x.new_tensor(lease.used.penalty if training and x.numel() else 0.0)


class _Forward(torch.autograd.Function):
    """y, or y and the penalty, of a forward pass that a backward pass may follow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: "Norm", training: bool, *params: Tensor) -> Any:
        ctx.lease, ctx.training, ctx.module = Lease(module._layer()), training, module
        # those of this call: torch.func.functional_call replaces them for a call
        ctx.state = module._named_tensors()[1]
        ctx.before = [one.detach().clone() for one in ctx.state] if training else ctx.state
        y = run(ctx.lease, training, x, params, ctx.state)
        ctx.save_for_backward(x, *params)
        return (y, penalty(ctx.lease, training, x)) if module.type.has_penalty else y

    @staticmethod
    def backward(ctx: Any, dy: Tensor, d_penalty: Optional[Tensor] = None) -> Any:
        x, *params = ctx.saved_tensors
        if not x.numel():
            return (torch.empty_like(x), None, None, *map(torch.zeros_like, params))
        if torch.is_grad_enabled() or _torch_ops.is_transformed(dy):  # a graph of the backward pass is wanted
            return _by_formulas(ctx, x, params, dy, d_penalty)
        layer, used = ctx.lease.layer, ctx.lease.used
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        with layer.backend.lock:
            _torch_ops.load(layer, params, ctx.state)
            layer.set_counters(ctx.lease.counters)
            layer.zero_grads()
            used.backward(x.data_ptr(), dy.data_ptr(), float(d_penalty) if d_penalty is not None else 0.0,
                          dx.data_ptr())
            if ctx.training:
                _torch_ops.store(layer, ctx.state[:len(layer.state)])
            grads = [_torch_ops.gradient(layer, vector, param) if vector.grad else None
                     for param, vector in zip(params, layer.params.values())]
        return (dx, None, None, *grads)


def _by_formulas(ctx: Any, x: Tensor, params: Sequence[Tensor], dy: Tensor,
                 d_penalty: Optional[Tensor]) -> Any:
    """The gradients with a graph: the formulas in plain PyTorch, from the state before the forward pass."""
    needed = [ctx.needs_input_grad[0], *ctx.needs_input_grad[3:]]
    inputs = [one for one, wanted in zip((x, *params), needed) if wanted]
    with torch.enable_grad():
        y, own_penalty, _ = ctx.module._by_page(x, None, params, ctx.before, ctx.state, ctx.training)
        outputs, upstream = [y], [dy]
        if own_penalty is not None and own_penalty.requires_grad and d_penalty is not None:
            outputs, upstream = [y, own_penalty], [dy, d_penalty]
        found = iter(torch.autograd.grad(outputs, inputs, upstream, create_graph=torch.is_grad_enabled(),
                                         allow_unused=True))
    grads = [next(found) if wanted else None for wanted in needed]
    return (grads[0], None, None, *grads[1:])


def normalize(module: "Norm", x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
    """y and, of a type with one, the penalty; with gradients if they are needed."""
    x, training = x.contiguous(), module.training
    given = module._named_tensors()[0]
    params = [param for param in given if param is not None]
    if torch.is_grad_enabled() and (x.requires_grad or any(param.requires_grad for param in params)):
        result = _Forward.apply(x, module, training, *params)
        return (result[0], result[1]) if module.type.has_penalty else (result, None)
    lease = Lease(module._layer())
    y = run(lease, training, x, given, module._named_tensors()[1])
    return y, penalty(lease, training, x) if module.type.has_penalty else None
