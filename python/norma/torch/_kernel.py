"""Norms by the kernels of the library, for float32 on the CPU: forward and backward passes as a function of
autograd.

``calls`` is the same in C (python/calls.c), with the same results. It is None without the extension, and its
functions return None for what they do not cover; then the functions of this file call the library through
ctypes.
"""
from __future__ import annotations

import ctypes
import os
import warnings
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

import torch
from torch import Tensor

from .. import _torch_ops
from .._library import UsageError, error_of, library, library_path
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
    return _gradients_by_formulas(ctx.module, x, params, ctx.before, ctx.state, ctx.training, dy, d_penalty,
                                  [ctx.needs_input_grad[0], *ctx.needs_input_grad[3:]], 2)


def _gradients_by_formulas(module: "Norm", x: Tensor, params: Sequence[Tensor], before: Sequence[Tensor],
                           state: Sequence[Tensor], training: bool, dy: Tensor, d_penalty: Optional[Tensor],
                           needed: Sequence[bool], others: int) -> Any:
    """The gradients with a graph: the formulas in plain PyTorch, from the state before the forward pass.
    needed: which of x and params; others: arguments of the function other than tensors."""
    inputs = [one for one, wanted in zip((x, *params), needed) if wanted]
    with torch.enable_grad():
        y, own_penalty, _ = module._by_page(x, None, params, before, state, training)
        outputs, upstream = [y], [dy]
        if own_penalty is not None and own_penalty.requires_grad and d_penalty is not None:
            outputs, upstream = [y, own_penalty], [dy, d_penalty]
        found = iter(torch.autograd.grad(outputs, inputs, upstream, create_graph=torch.is_grad_enabled(),
                                         allow_unused=True))
    grads = [next(found) if wanted else None for wanted in needed]
    return (grads[0], *(None for _ in range(others)), *grads[1:])


# ---- the calls in C ----

def _formulas_of_call(ctx: Any, dy: Tensor, d_penalty: Optional[Tensor]) -> Any:
    """The backward pass of ``_Called`` with a graph."""
    call, (x, *params) = ctx.call, ctx.saved_tensors
    before = call.before
    tensors = call.state if before is None else [
        torch.frombuffer(bytearray(one), dtype=tensor.dtype).reshape(tensor.shape)
        for one, tensor in zip(before, call.state)
    ]
    return _gradients_by_formulas(call.module, x, params, tensors, call.state, call.training, dy, d_penalty,
                                  [ctx.needs_input_grad[0], *ctx.needs_input_grad[2:]], 1)


def _raise_error(status: int, text: str) -> None:
    raise error_of(status, text)


def _load() -> Any:
    """The extension in the library's folder; None: there is none, or this PyTorch lacks what it needs."""
    path = os.path.join(os.path.dirname(library_path()), "_calls.abi3.so")
    functions: Any = getattr(torch._C, "_functorch", None)
    state: Any = torch._C
    if (not os.path.exists(path) or not hasattr(functions, "peek_interpreter_stack")
            or not hasattr(getattr(torch, "compiler", None), "is_compiling")):
        return None
    try:
        loader = ExtensionFileLoader("norma._calls", path)
        spec = spec_from_loader(loader.name, loader)
        assert spec is not None
        extension: Any = module_from_spec(spec)
        loader.exec_module(extension)
    except ImportError:  # an interpreter without the stable interface of CPython
        return None

    class _Called(torch.autograd.Function):
        """``_Forward`` in C; forward(ctx, x, call, *params)."""
        forward = staticmethod(extension.function_forward)
        backward = staticmethod(extension.function_backward)

    names = ("nm_norm_pass_forward", "nm_norm_pass_infer", "nm_norm_pass_backward", "nm_norm_pass_penalty",
             "nm_norm_zero_grads")
    addresses = {name: ctypes.cast(getattr(library(), name), ctypes.c_void_p).value for name in names}
    forward_ad: Any = torch.autograd.forward_ad
    extension.setup(addresses, {
        "tensor_type": Tensor,
        "parameter_type": torch.nn.Parameter,
        "float32": torch.float32,
        "int64": torch.int64,
        "empty_like": torch.empty_like,
        "is_grad_enabled": torch.is_grad_enabled,
        "get_num_threads": torch.get_num_threads,
        "tracing_state": getattr(state, "_get_tracing_state", None),
        "transforms": functions.peek_interpreter_stack,
        "is_wrapped": getattr(functions, "is_functorch_wrapped_tensor", None),
        "is_batched": getattr(functions, "is_legacy_batchedtensor", None),
        "forward_levels": vars(forward_ad),
        "apply": super(torch.autograd.Function, _Called).apply,  # without its checks, which have been made
        "by_formulas": _formulas_of_call,
        "raise_error": _raise_error,
        "warn_recomputed": warn_recomputed,
        "exchange": getattr(Tensor, "__dlpack_c_exchange_api__", None),  # newer PyTorch
    })
    return extension


def new_calls(layer: Layer, has_penalty: bool) -> Any:
    """The layer for ``calls``."""
    return calls.Layer(layer, layer.passes, layer.backend.lock, layer.handle, layer.spec.width, has_penalty,
                       tuple((one.address, one.length, one.grad or 0) for one in layer.params.values()),
                       tuple((one.address, one.length, 0) for one in layer.state.values()),
                       tuple(layer.counters.values()))


def warn_recomputed(module: "Norm", y: Tensor) -> None:
    """A warning if y is that of a repeated forward pass whose penalty has no gradient."""
    if _torch_ops.in_backward() and y.requires_grad:
        warnings.warn(
            f"norm '{module.type.name}': the penalty has no gradient, because the forward pass of reentrant "
            "activation checkpointing computes none; use checkpoint(..., use_reentrant=False)"
        )


calls = _load()


def normalize(module: "Norm", x: Tensor) -> Tensor:
    """y, with gradients if they are needed; of a type with a penalty, it becomes the module's."""
    x, training = x.contiguous(), module.training
    given, state = module._named_tensors()
    if calls is not None:
        layer = module._layer()
        y: Optional[Tensor] = calls.normalize(module, module._calls[layer.threads], x, tuple(given),
                                              tuple(state))
        if y is not None:
            return y
    module._warn_of_one_token(x, None)
    for name, size, param in zip(module._names[0], module._sizes, given):
        if param is None:
            raise UsageError(f"norm '{module.type.name}': {name} does not have {size} elements")
    params, has_penalty = given, module.type.has_penalty
    if torch.is_grad_enabled() and (x.requires_grad or any(param.requires_grad for param in params)):
        result = _Forward.apply(x, module, training, *params)
        y, new = (result[0], result[1]) if has_penalty else (result, None)
    else:
        lease = Lease(module._layer())
        y = run(lease, training, x, given, state)
        new = penalty(lease, training, x) if has_penalty else None
    assert y is not None
    if has_penalty:
        old, module._penalty = module._penalty, new if training else None
        if training and old is not None and not old.requires_grad:
            warn_recomputed(module, y)
    return y
