"""Norms as custom operators of PyTorch, so that ``torch.compile`` keeps them in its graph.

    norma::normalize            y, the penalty, and the state before and after the pass
    norma::normalize_backward   gradients of x and of the parameters, and the running vectors that the
    backward pass changes

Both are functions of their arguments, so everything that a forward pass keeps for its backward pass is a
tensor. The backward pass loads the state before the forward pass and repeats that pass inside the layer.
``state`` contains the running vectors and the counters, in the order of the module's buffers.
"""
from __future__ import annotations

import ctypes
import functools
from ctypes import c_int64
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import torch
from torch import Tensor

from ._library import UsageError
from ._norms import Layer, LayerSpec, Vector, norm_type

# ---- tensors and the memory of a layer, whose lock the caller holds ----


def load(layer: Layer, params: Sequence[Optional[Tensor]], state: Sequence[Optional[Tensor]]) -> None:
    """Copies parameters and state to the layer. state may have a counter more than the layer."""
    vectors = (*layer.params.items(), *layer.state.items())
    for (name, vector), tensor in zip(vectors, (*params, *state)):
        if tensor is None or tensor.numel() != vector.length:
            raise UsageError(f"norm '{layer.spec.type.name}': {name} does not have {vector.length} elements")
        source = tensor.detach().contiguous()
        ctypes.memmove(vector.address, source.data_ptr(), vector.length * layer.element)
    for address, counter in zip(layer.counters.values(), state[len(layer.state):]):
        c_int64.from_address(address).value = int(counter)  # type: ignore[arg-type]


def store(layer: Layer, state: Sequence[Tensor]) -> None:
    """Copies running vectors and counters of the layer to tensors."""
    for vector, tensor in zip(layer.state.values(), state):
        target = (
            tensor
            if tensor.is_contiguous()
            else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        )
        ctypes.memmove(target.data_ptr(), vector.address, vector.length * layer.element)
        if target is not tensor:
            tensor.copy_(target)
    for address, counter in zip(layer.counters.values(), state[len(layer.state):]):
        counter.fill_(c_int64.from_address(address).value)


def gradient(layer: Layer, vector: Vector, param: Tensor) -> Tensor:
    """The gradient of a learned parameter, a copy."""
    grad = torch.empty_like(param, memory_format=torch.contiguous_format)
    ctypes.memmove(grad.data_ptr(), vector.grad, vector.length * layer.element)  # type: ignore[arg-type]
    return grad


# ---- layers ----

def text_of(spec: LayerSpec) -> str:
    """Argument ``spec`` of the operators: everything but the width, as one text."""
    return f"{spec.type.name} {spec.groups} {spec.warmup_updates} {spec.settings}"


@functools.lru_cache(maxsize=None)
def _shared_layer(spec: str, width: int, double: bool, threads: int) -> Layer:
    name, groups, warmup, settings = spec.split(" ", 3)
    return Layer(LayerSpec(norm_type(name), width, int(groups), settings, int(warmup)), double, threads)


def _layer(spec: str, x: Tensor, *others: Tensor) -> Layer:
    """A layer for a call. Calls with equal arguments share it, and load everything that they read. others:
    tensors that must be of the type of x."""
    for tensor in others:
        if tensor.dtype != x.dtype and tensor.is_floating_point():
            raise UsageError(
                f"norm '{spec.split(' ')[0]}': tensors of the types {x.dtype} and {tensor.dtype}"
            )
    double = x.dtype == torch.float64
    return _shared_layer(spec, x.shape[-1], double, 1 if double else torch.get_num_threads())


def _packed(x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
    return x.contiguous() if padding_mask is None else x[~padding_mask]


def _padded(packed: Tensor, padding_mask: Optional[Tensor], shape: torch.Size) -> Tensor:
    if padding_mask is None:
        return packed
    return packed.new_zeros(shape).masked_scatter_(~padding_mask.unsqueeze(-1), packed)


def _copies(tensors: Sequence[Tensor]) -> List[Tensor]:
    return [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors]


# ---- operators ----

def _forward(x: Tensor, params: Sequence[Tensor], state: Sequence[Tensor], padding_mask: Optional[Tensor],
             spec: str,
             training: bool) -> Tuple[Tensor, Tensor, List[Tensor], List[Tensor]]:
    layer, packed = _layer(spec, x, *params, *state), _packed(x, padding_mask)
    y, before, after = torch.empty_like(packed), _copies(state), _copies(state)
    if not packed.numel():
        return x.new_zeros(x.shape), x.new_zeros(()), before, after
    with layer.borrowed_pass() as used, layer.backend.lock:
        load(layer, params, state)
        used.forward(training, packed.numel() // layer.spec.width, packed.data_ptr(), y.data_ptr())
        penalty = x.new_tensor(used.penalty if training else 0.0)
        if training:
            store(layer, after)
    if training and len(state) > len(layer.state) + len(layer.counters):  # num_batches_tracked
        after[-1].add_(1)
    return _padded(y, padding_mask, x.shape), penalty, before, after


def _forward_shapes(x: Tensor, params: Sequence[Tensor], state: Sequence[Tensor],
                    padding_mask: Optional[Tensor],
                    spec: str, training: bool) -> Tuple[Tensor, Tensor, List[Tensor], List[Tensor]]:
    before, after = ([one.new_empty(one.shape) for one in state] for _ in range(2))
    return x.new_empty(x.shape), x.new_empty(()), before, after


def _backward(grads: Sequence[Tensor], x: Tensor, params: Sequence[Tensor], before: Sequence[Tensor],
              now: Sequence[Tensor], padding_mask: Optional[Tensor], spec: str, training: bool,
              changes: Sequence[int]) -> Tuple[Tensor, List[Tensor], List[Tensor]]:
    """grads: of y and of the penalty. before: state before the forward pass; now: before the backward pass,
    whose counters are not used: those of the forward pass are. changes: places in the state of the running
    vectors to return."""
    layer, packed = _layer(spec, x, *grads, *params, *before, *now), _packed(x, padding_mask)
    d_params, after = [torch.zeros_like(param) for param in params], _copies(now)
    if not packed.numel():
        return x.new_zeros(x.shape), d_params, [after[i] for i in changes]
    dy, dx, y = _packed(grads[0], padding_mask), torch.empty_like(packed), torch.empty_like(packed)
    with layer.borrowed_pass() as used, layer.backend.lock:
        load(layer, params, before)
        used.forward(training, packed.numel() // layer.spec.width, packed.data_ptr(), y.data_ptr())
        counters = layer.counter_values()
        load(layer, params, now)
        layer.set_counters(counters)
        layer.zero_grads()
        used.backward(packed.data_ptr(), dy.data_ptr(), float(grads[1]), dx.data_ptr())
        store(layer, after)
        for i, vector in enumerate(layer.params.values()):
            if vector.grad:
                d_params[i] = gradient(layer, vector, params[i])
    return _padded(dx, padding_mask, x.shape), d_params, [after[i] for i in changes]


def _backward_shapes(grads: Sequence[Tensor], x: Tensor, params: Sequence[Tensor], before: Sequence[Tensor],
                     now: Sequence[Tensor], padding_mask: Optional[Tensor], spec: str, training: bool,
                     changes: Sequence[int]) -> Tuple[Tensor, List[Tensor], List[Tensor]]:
    return (x.new_empty(x.shape), [one.new_empty(one.shape) for one in params],
            [now[i].new_empty(now[i].shape) for i in changes])


def _snapshot(x: Tensor) -> Tensor:
    return x.detach().clone()


def snapshot(x: Tensor) -> Tensor:
    """A copy of a buffer that the call changes. An operator, because the partition of a graph sees through
    clone(): it would keep the buffer itself for the backward pass."""
    copy: Tensor = torch.ops.norma.snapshot(x) if available and is_building_graph() else x.detach().clone()
    return copy


def _register() -> bool:
    """Registers the operators; false: this version of PyTorch is too old. 2.4 has custom operators, but its
    torch.compile fails in _Normalize; versions between 2.4 and 2.15 have not been tried."""
    library, version = torch.library, torch.__version__  # type: Any, Any
    if version < (2, 15):
        return False
    for name, run, shapes, schema in (
        ("norma::snapshot", _snapshot, _snapshot, "(Tensor x) -> Tensor"),
        (
            "norma::normalize",
            _forward,
            _forward_shapes,
            "(Tensor x, Tensor[] params, Tensor[] state, Tensor? padding_mask, str spec, bool training)"
            " -> (Tensor, Tensor, Tensor[], Tensor[])",
        ),
        (
            "norma::normalize_backward",
            _backward,
            _backward_shapes,
            "(Tensor[] grads, Tensor x, Tensor[] params, Tensor[] before, Tensor[] now, Tensor? "
            "padding_mask, str spec,"
            " bool training, int[] changes) -> (Tensor, Tensor[], Tensor[])",
        ),
    ):
        devices = None if name == "norma::snapshot" else "cpu"
        operator = library.custom_op(name, run, mutates_args=(), device_types=devices, schema=schema)
        operator.register_fake(shapes)
    return True


available = _register()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_building_graph() -> bool:
    """Whether torch.compile or torch.export is building a graph."""
    compiler: Any = getattr(torch, "compiler", None)
    return hasattr(compiler, "is_compiling") and bool(compiler.is_compiling())


def is_exporting() -> bool:
    """Whether a graph for torch.export or ONNX is being built, which must not need Norma."""
    compiler: Any = getattr(torch, "compiler", None)
    if hasattr(compiler, "is_exporting") and compiler.is_exporting():
        return True
    onnx: Any = getattr(torch, "onnx", None)
    return not is_building_graph() and hasattr(onnx, "is_in_onnx_export") and bool(onnx.is_in_onnx_export())


def is_autocast_type(x: Tensor) -> bool:
    """Whether x is of a type of torch.autocast, and autocast is enabled: then operations in float32 convert
    their inputs."""
    if x.dtype not in (torch.bfloat16, torch.float16):
        return False
    amp: Any = torch
    try:
        return bool(amp.is_autocast_enabled(x.device.type))
    except (TypeError, RuntimeError):  # before PyTorch 2.4; a device without autocast
        return bool(amp.is_autocast_cpu_enabled() if x.device.type == "cpu" else amp.is_autocast_enabled())


def in_backward() -> bool:
    """Whether this thread computes a backward pass, as when activation checkpointing repeats a forward
    pass."""
    current: Any = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


def have_tangent(*tensors: Tensor) -> bool:
    """Whether one of the tensors has a tangent of forward-mode differentiation."""
    forward: Any = torch.autograd.forward_ad
    return forward._current_level >= 0 and any(
        forward.unpack_dual(one).tangent is not None for one in tensors
    )


def _tests_of_transforms() -> List[Callable[[Tensor], bool]]:
    functions: Any = getattr(torch._C, "_functorch", None)
    tests = [getattr(functions, name) for name in ("is_functorch_wrapped_tensor", "is_legacy_batchedtensor")
             if hasattr(functions, name)]
    if len(tests) == 1:  # before PyTorch 2.2: batches of gradients are known by their dispatch key
        key = torch._C._dispatch_key_parse("Batched")
        tests.append(lambda one: torch._C._dispatch_keys(one).has(key))
    return tests


_transform_tests = _tests_of_transforms()


def is_transformed(*tensors: Tensor) -> bool:
    """Whether one of the tensors stands for others in a transform of torch.func, such as the batch of vmap:
    it has no memory."""
    return any(test(one) for one in tensors for test in _transform_tests)


def is_tracing() -> bool:
    """Whether torch.jit.trace is recording: of a kernel it would record an output without values."""
    jit: Any = torch.jit
    return bool(jit.is_tracing())


def not_compiled(function: _Function) -> _Function:
    """Without operators, torch.compile breaks the graph at this function and continues after it.
    torch.compiler.disable would do the same, but its import takes as long as that of PyTorch. Before 2.0
    there is no torch.compile."""
    disable: Callable[[_Function], _Function] = getattr(torch, "_disable_dynamo", lambda function: function)
    return function if available else disable(function)


# ---- the operators in a model ----

class _Normalize(torch.autograd.Function):
    """y, the penalty, and the new state, which has no gradient. The backward pass changes running vectors in
    place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, padding_mask: Optional[Tensor], spec: str, training: bool,
                changes: Sequence[int],
                n_params: int, *tensors: Tensor) -> Any:
        params, state = tensors[:n_params], tensors[n_params:]
        y, penalty, before, after = torch.ops.norma.normalize(x, params, state, padding_mask, spec, training)
        ctx.spec, ctx.training, ctx.changes, ctx.n_params = spec, training, changes, n_params
        ctx.state = state  # not by save_for_backward: it changes in place before the backward pass, and in it
        ctx.save_for_backward(x, padding_mask, *params, *before)
        ctx.mark_non_differentiable(*after)
        return (y, penalty, *after)

    @staticmethod
    def backward(ctx: Any, dy: Tensor, d_penalty: Tensor, *_: Any) -> Any:
        x, padding_mask, *tensors = ctx.saved_tensors
        params, before = tensors[:ctx.n_params], tensors[ctx.n_params:]
        dx, d_params, changed = torch.ops.norma.normalize_backward(
            [dy, d_penalty], x, params, before, ctx.state, padding_mask, ctx.spec, ctx.training, ctx.changes
        )
        for place, value in zip(ctx.changes, changed):
            ctx.state[place].copy_(value)
        return (dx, None, None, None, None, None, *d_params, *(None for _ in ctx.state))


def normalize(x: Tensor, params: Sequence[Tensor], state: Sequence[Tensor], padding_mask: Optional[Tensor],
              spec: str, training: bool, of_gradients: Sequence[int]) -> Tuple[Tensor, Tensor]:
    """y and the penalty, for a graph; in training mode also updates the state. of_gradients: places in the
    state of the running vectors that the backward pass changes."""
    changes = of_gradients if training else ()
    y, penalty, *after = _Normalize.apply(x, padding_mask, spec, training, changes, len(params), *params,
                                          *state)
    for place, (buffer, value) in enumerate(zip(state, after)):
        if training and place not in changes:
            buffer.copy_(value)
    return y, penalty
