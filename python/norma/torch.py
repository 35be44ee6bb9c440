"""Normalization layers of Norma as PyTorch modules, for CPU tensors.

    import norma.torch
    norm = norma.torch.PowerNorm(512, groups=8, warmup=4000)
    norma.torch.replace_norms(model, "power", groups=8, warmup=4000)

There is a class for every type of ``norma.norm_types()``, named after its title: ``LayerNorm``, ``PowerNorm``,
``RegularizedBatchNorm``, ...; ``dir(norma.torch)`` lists them. All are ``Norm`` with a fixed type.

``torch.compile(model, fullgraph=True)`` compiles them as custom operators, with PyTorch 2.15 or later.
"""
from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type)

import torch
from torch import Tensor, nn

from . import _torch_ops
from ._library import UnsupportedError, UsageError
from ._norms import Layer, LayerSpec, NormType, Vector, norm_types

__all__ = ["Norm", "padding", "penalty", "replace_norms", "tid", "SiteTID"]

# Shapes of the tensors of the published modules, where they are not [length]; -1: the length, 0: the width.
_SHAPES: Dict[str, Dict[str, Tuple[int, ...]]] = {
    "power": {"running_phi": (1, -1, 1, 1), "ema_gz": (1, -1, 1, 1), "iters": (1,)},
    "mabn": {"buffer_x2": (-1, 0), "buffer_gz": (-1, 0)},
    "un": {"buffer_x2": (-1, 0), "buffer_gz": (-1, 0), "iters": (1,), "skip_counter": (1,)},
    "scale": {"scale": ()},
}
# Types without a counter, which get that of torch.nn.BatchNorm1d.
_BATCH_COUNTER, _WITH_BATCH_COUNTER = "num_batches_tracked", ("batch", "rbn")


def _check_tensor(name: str, what: str, x: Any) -> None:
    """TypeError unless x is a tensor. name: of the norm or the function."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: {what} is a {type(x).__module__}.{type(x).__name__}, expected a torch.Tensor")


def _shape(spec: LayerSpec, name: str, length: int) -> Tuple[int, ...]:
    known = _SHAPES.get(spec.type.name, {}).get(name, (length,))
    rows = length // spec.width if 0 in known else length
    return tuple(rows if n == -1 else spec.width if n == 0 else n for n in known)


class _Lease:
    """A pass of a layer, returned to it with the graph of a forward pass."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.used = layer, layer.acquire_pass()
        self.counters: List[int] = []  # after the forward pass

    def __del__(self) -> None:
        self.layer.release_pass(self.used)


class _Forward(torch.autograd.Function):
    """y, or y and the penalty, of a forward pass that a backward pass may follow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: "Norm", training: bool, *params: Tensor) -> Any:
        ctx.lease, ctx.training = _Lease(module._layer(x)), training
        y = module._run(ctx.lease, training, x)
        ctx.save_for_backward(x, *params)
        ctx.state = module._named_tensors()[1]  # those of this call: torch.func.functional_call replaces them for a call
        if not module.type.has_penalty:
            return y
        return y, x.new_tensor(ctx.lease.used.penalty if training and x.numel() else 0.0)

    @staticmethod
    @_torch_ops.differentiable_once
    def backward(ctx: Any, dy: Tensor, d_penalty: Optional[Tensor] = None) -> Any:
        x, *params = ctx.saved_tensors
        layer, used = ctx.lease.layer, ctx.lease.used
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        if not x.numel():
            return (dx, None, None, *map(torch.zeros_like, params))
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


class Norm(nn.Module):
    """A normalization layer of any type: ``Norm("power", 512, groups=8, warmup=4000)``.

    type: name of a type, ``norma.norm_types()``; width: number of features; groups: number of groups of features,
    for GroupNorm and group scaling (usually the number of attention heads); dtype: ``torch.float32``, or
    ``torch.float64`` for checks (slow); options: those of ``norma.norm_types()[type].options``.

    Input and output have the shape ``[..., width]``; all dimensions except the last one are token dimensions. In training
    mode, types with batch statistics compute them over all tokens of the call except padding, and update the running
    statistics. In evaluation mode they use the running statistics, and the output of a token does not depend on other
    tokens. Parameters and buffers have the names and shapes of the published modules, so their ``state_dict`` can be
    loaded and vice versa. PowerNorm's ``warmup`` is counted in forward passes and should equal the warm-up of the
    learning rate; the default is that of the published module, 10000.

    UsageError (a ValueError): unknown type, option or value, a width that the groups do not divide, a wrong shape.
    UnsupportedError: a tensor that is not on the CPU, or not of the module's type; a backward pass with
    ``create_graph=True``, because there are no second derivatives; an input with a tangent of forward-mode differentiation.
    TypeError: x is not a tensor.
    """

    def __init__(self, type: str, width: int, *, groups: int = 1, dtype: torch.dtype = torch.float32,
                 **options: Any) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise UsageError(f"dtype {dtype}: expected torch.float32 or torch.float64")
        self._spec = LayerSpec.of(type, width, groups, options)
        self._padding_mask: Optional[Tensor] = None
        self._forget()
        layer = self._layer_of(dtype)
        for name, vector in layer.params.items():
            self.register_parameter(name, nn.Parameter(self._copy(layer, name, vector),
                                                       requires_grad=bool(vector.grad)))
        for name, vector in layer.state.items():
            self.register_buffer(name, self._copy(layer, name, vector))
        counters = list(layer.counters) or ([_BATCH_COUNTER] if type in _WITH_BATCH_COUNTER else [])
        for name in counters:
            self.register_buffer(name, torch.zeros(_SHAPES.get(type, {}).get(name, ()), dtype=torch.int64))
        self._names = tuple(layer.params), (*layer.state, *counters)
        self._of_gradients = layer.of_gradients
        self._learned = tuple(name for name, vector in layer.params.items() if vector.grad)

    @property
    def type(self) -> NormType:  # type: ignore[override]
        """The type of the norm."""
        return self._spec.type

    @property
    def width(self) -> int:
        """Number of features."""
        return self._spec.width

    @property
    def eps(self) -> float:
        """NaN. torch.nn.TransformerEncoderLayer uses fused kernels, which compute LayerNorm, if the norms of a layer have
        equal ``eps``. NaN is not equal to any number, including itself, and so prevents this."""
        return float("nan")

    @property
    def penalty(self) -> Tensor:
        """Penalty of the last forward pass in training mode, a scalar with gradient; 0 for types without one."""
        return self._penalty if self._penalty is not None else torch.zeros(())

    # ---- memory of the layer: parameters and state are the module's tensors, and are copied for each call ----

    def _forget(self) -> None:
        self._layers: Dict[Tuple[bool, int], Layer] = {}
        self._penalty: Optional[Tensor] = None

    def _layer_of(self, dtype: torch.dtype) -> Layer:
        double = dtype == torch.float64
        key = (double, 1 if double else torch.get_num_threads())
        if key not in self._layers:
            self._layers[key] = Layer(self._spec, *key)
        return self._layers[key]

    def _check_types(self, x: Tensor) -> None:
        for tensor in (*self._parameters.values(), *self._buffers.values()):
            if tensor is not None and tensor.is_floating_point() and (tensor.dtype != x.dtype
                                                                      or tensor.device.type != "cpu"):
                raise UnsupportedError(f"norm '{self.type.name}': x is {x.dtype} on the {x.device.type}, the module "
                                       f"{tensor.dtype} on the {tensor.device.type}")

    def _layer(self, x: Tensor) -> Layer:
        self._check_types(x)
        return self._layer_of(x.dtype)

    def _view(self, layer: Layer, name: str, vector: Vector) -> Tensor:
        """The memory of a vector."""
        memory = torch.frombuffer(layer.memory(vector.address, vector.length),
                                  dtype=torch.float64 if layer.double else torch.float32)
        return memory.reshape(_shape(self._spec, name, vector.length))

    def _copy(self, layer: Layer, name: str, vector: Vector) -> Tensor:
        """A copy on the default device, such as "meta"."""
        view = self._view(layer, name, vector)
        return torch.empty(view.shape, dtype=view.dtype).copy_(view)

    def _named_tensors(self) -> Tuple[List[Any], List[Any]]:
        """Parameters and buffers in the order of the layer; None: deleted by the caller. A parameter may be computed by
        torch.nn.utils.parametrize."""
        return [getattr(self, name) for name in self._names[0]], [self._buffers[name] for name in self._names[1]]

    def _run(self, lease: _Lease, training: bool, x: Tensor) -> Tensor:
        y, layer = torch.empty_like(x), lease.layer
        if not x.numel():
            return y
        with layer.backend.lock:
            params, state = self._named_tensors()
            _torch_ops.load(layer, params, state)
            lease.used.forward(training, x.numel() // self.width, x.data_ptr(), y.data_ptr())
            lease.counters = layer.counter_values()
            if training:
                _torch_ops.store(layer, state)
        counter = self._buffers.get(_BATCH_COUNTER)
        if training and counter is not None and _BATCH_COUNTER not in layer.counters:
            counter.add_(1)
        return y

    def reset_parameters(self) -> None:
        """Sets parameters, running statistics and counters to their initial values, in place, also after ``to_empty``."""
        layer = Layer(self._spec, False, 1)
        vectors = {**layer.params, **layer.state}
        with torch.no_grad():
            for name, tensor in (*self._parameters.items(), *self._buffers.items()):
                if tensor is not None and name in vectors:
                    tensor.copy_(self._view(layer, name, vectors[name]))
                elif tensor is not None:
                    tensor.zero_()  # a counter
        self._penalty = None

    # ---- forward ----

    def _check(self, x: Tensor) -> None:
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or x.layout != torch.strided:
            raise UnsupportedError(f"norm '{self.type.name}': x is {x.dtype} on the {x.device.type}; expected a dense "
                                   "float32 tensor on the CPU (convert it: x.float())")
        if x.dim() < 1 or x.shape[-1] != self.width:
            raise UsageError(f"norm '{self.type.name}': x has the shape {list(x.shape)}, expected [..., {self.width}]")

    def _normalize(self, x: Tensor) -> Tensor:
        """y of tokens without padding."""
        x = x.contiguous()
        params = [param for param in self._named_tensors()[0] if param is not None]
        if _torch_ops.have_tangent(x, *params):
            raise UnsupportedError(f"norm '{self.type.name}': forward-mode differentiation is not supported")
        if _torch_ops.is_transformed(x, *params):
            raise UnsupportedError(f"norm '{self.type.name}': the transforms of torch.func (grad, vmap, ...) are not supported")
        if torch.is_grad_enabled() and (x.requires_grad or any(param.requires_grad for param in params)):
            result = _Forward.apply(x, self, self.training, *params)
            y: Tensor = result[0] if self.type.has_penalty else result
            if self.type.has_penalty:
                before, self._penalty = self._penalty, result[1] if self.training else None
                if self.training and before is not None and not before.requires_grad and _torch_ops.in_backward():
                    warnings.warn(f"norm '{self.type.name}': the penalty has no gradient, because the forward pass of reentrant "
                                  "activation checkpointing computes none; use checkpoint(..., use_reentrant=False)")
            return y
        lease = _Lease(self._layer(x))
        y = self._run(lease, self.training, x)
        if self.type.has_penalty:
            self._penalty = x.new_tensor(lease.used.penalty if x.numel() else 0.0) if self.training else None
        return y

    def _in_graph(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        """y, by custom operators."""
        self._check_types(x)
        params, state = self._named_tensors()
        y, penalty = _torch_ops.normalize(x, params, state, mask, _torch_ops.text_of(self._spec), self.training,
                                          self._of_gradients)
        if self.type.has_penalty:
            self._penalty = penalty if self.training else None
        return y

    @_torch_ops.not_compiled
    def forward(self, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        """y of the shape of x.

        x: [..., width]. padding_mask: bool, the shape of x without the last axis, true at padding, as
        ``key_padding_mask`` of PyTorch; default: that of ``norma.torch.padding``. Padding is excluded from all statistics,
        and y and the gradient are 0 there. Per-token norms ignore the mask. Within ``torch.autocast``, bfloat16 and float16
        inputs are converted to float32, and y is float32.
        """
        _check_tensor(f"norm '{self.type.name}'", "x", x)
        if _torch_ops.is_autocast_type(x):
            x = x.float()
        self._check(x)
        mask = self._padding_mask if padding_mask is None else padding_mask
        if not self.type.uses_batch:
            mask = None
        if mask is not None:
            _check_tensor(f"norm '{self.type.name}'", "padding_mask", mask)
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:-1]):
            raise UsageError(f"norm '{self.type.name}': padding_mask is {mask.dtype} {list(mask.shape)}, expected "
                             f"torch.bool {list(x.shape[:-1])}")
        if _torch_ops.is_compiling():
            return self._in_graph(x, mask)
        if _torch_ops.is_tracing():
            raise UnsupportedError(f"norm '{self.type.name}': torch.jit.trace is not supported; use torch.compile or "
                                   "torch.export")
        if mask is None:
            return self._normalize(x)
        kept = ~mask
        return torch.zeros_like(x).masked_scatter(kept.unsqueeze(-1), self._normalize(x[kept]))

    # ---- copies and state ----

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state.update(_layers={}, _penalty=None, _padding_mask=None,
                     _spec=(self.type.name, *self._spec[1:]))
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        name, *rest = state["_spec"]
        super().__setstate__({**state, "_spec": LayerSpec(norm_types()[name], *rest)})  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, *args: Any) -> None:
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if tensor is None:
                continue
            if isinstance(given, Tensor) and given.shape != tensor.shape and given.numel() == tensor.numel():
                state_dict[prefix + name] = given.reshape(tensor.shape)
            elif given is None and name == _BATCH_COUNTER:
                state_dict[prefix + name] = tensor.detach().clone()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        own = "" if type(self) is not Norm else f"{self.type.name!r}, "
        groups = f", groups={self._spec.groups}" if self._spec.groups != 1 else ""
        settings = ", " + ", ".join(self._spec.settings.split()) if self._spec.settings else ""
        return f"{own}{self.width}{groups}{settings}"


# ---- a class for each type ----

_CLASS_NAMES = {"none": "NoNorm"}


def _class_name(found: NormType) -> str:
    return _CLASS_NAMES.get(found.name, found.title.replace(" ", "").replace("-", ""))


def _class_of(found: NormType) -> Type[Norm]:
    def __init__(self: Norm, width: int, *, groups: int = 1, dtype: torch.dtype = torch.float32,
                 **options: Any) -> None:
        Norm.__init__(self, found.name, width, groups=groups, dtype=dtype, **options)

    rows = "\n".join(f"    {name} ({option.default}): {option.help}" for name, option in found.options.items())
    text = f"{found.title}: {found.formula}.\n\n    Source: {found.source}.\n\n    Options:\n\n{rows}\n"
    return type(_class_name(found), (Norm,), {"__init__": __init__, "__doc__": text, "__module__": __name__})


if TYPE_CHECKING:  # for type checkers and editors, which do not call __getattr__
    class _TypedNorm(Norm):
        def __init__(self, width: int, *, groups: int = 1, dtype: torch.dtype = torch.float32, **options: Any) -> None: ...

    class AdaNorm(_TypedNorm): ...
    class BatchNorm(_TypedNorm): ...
    class BatchRenormalization(_TypedNorm): ...
    class Derf(_TypedNorm): ...
    class DyT(_TypedNorm): ...
    class FixNorm(_TypedNorm): ...
    class GroupNorm(_TypedNorm): ...
    class GroupNorm2d(_TypedNorm): ...
    class LayerNorm(_TypedNorm): ...
    class MovingAverageBatchNorm(_TypedNorm): ...
    class NoNorm(_TypedNorm): ...
    class PNV(_TypedNorm): ...
    class PartialRMSNorm(_TypedNorm): ...
    class PowerNorm(_TypedNorm): ...
    class ProgressiveRepBN(_TypedNorm): ...
    class RMSNorm(_TypedNorm): ...
    class RegularizedBatchNorm(_TypedNorm): ...
    class RepBN(_TypedNorm): ...
    class ScaleNorm(_TypedNorm): ...
    class SeeDNorm(_TypedNorm): ...
    class UnifiedNormalization(_TypedNorm): ...
    class UnitNorm(_TypedNorm): ...
else:
    def __getattr__(name: str) -> Type[Norm]:
        for found in norm_types().values():
            if _class_name(found) == name:
                made = globals()[name] = _class_of(found)
                return made
        raise AttributeError(f"module 'norma.torch' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(set(__all__) | {_class_name(found) for found in norm_types().values()})


# ---- models ----

def _norms(model: nn.Module) -> List[Norm]:
    return [module for module in model.modules() if isinstance(module, Norm)]


@contextlib.contextmanager
def padding(model: nn.Module, padding_mask: Optional[Tensor]) -> Iterator[None]:
    """Context manager: every norm of Norma in ``model`` uses this padding mask:

        with norma.torch.padding(encoder, mask):
            y = encoder(x, src_key_padding_mask=mask)

    The mask has the shape of the norms' input without the last axis, and is true at padding. None: no mask. For an
    encoder and a decoder, nest two contexts.
    """
    if padding_mask is not None:
        _check_tensor("norma.torch.padding", "padding_mask", padding_mask)
    changed = [(norm, norm._padding_mask) for norm in _norms(model)]
    for norm, _ in changed:
        norm._padding_mask = padding_mask
    try:
        yield
    finally:
        for norm, before in changed:
            norm._padding_mask = before


def penalty(model: nn.Module) -> Tensor:
    """Sum of the penalties of the last forward pass over all norms of ``model``; a scalar with gradient.

    Regularized BatchNorm (Wang et al. 2022, equation 6) adds it to the loss, which in the released code is a
    sum over tokens:

        loss = cross_entropy_sum + norma.torch.penalty(model)
    """
    return sum((norm.penalty for norm in _norms(model)), torch.zeros(()))


def _token_norms() -> Tuple[Type[nn.Module], ...]:
    return tuple(kind for kind in (nn.LayerNorm, getattr(nn, "RMSNorm", None)) if kind is not None)


def _width_of(name: str, module: nn.Module) -> int:
    weight = getattr(module, "weight", None)
    shape: Sequence[int] = getattr(module, "normalized_shape", None) or (weight.shape if weight is not None else ())
    if isinstance(module, Norm):
        return module.width
    if len(shape) != 1:
        raise UsageError(f"{name or 'the model'}: normalizes over the shape {tuple(shape)}, expected one axis")
    return int(shape[0])


def replace_norms(model: nn.Module, type: str, *, groups: int = 1, kinds: Optional[Iterable[Type[nn.Module]]] = None,
                  where: Optional[Callable[[str, nn.Module], bool]] = None, **options: Any) -> List[str]:
    """Replaces the normalization layers of a model, in place, by ``Norm(type, width, groups=groups, **options)``.

    kinds: classes to replace; the default is LayerNorm and RMSNorm of PyTorch, and every norm of Norma. Weights of other classes
    are copied unchanged, which is wrong where the factor is weight + 1 (Gemma). where: function
    of the name and the module that returns true for layers to replace; by default all are replaced. A layer that is shared by
    several modules remains shared. Returns the names of the replaced layers, in order.

    What is kept of a replaced layer:

    - its weight (``scale`` of ``norma.torch.RMSNorm``) and bias if the new layer has them, with ``requires_grad``, and its
      training mode. If all parameters of the layer are frozen, so are those of the new one. A weight or bias that it lacks
      (``elementwise_affine=False``, ``bias=False``) keeps its initial value in the new layer: it is frozen;
    - ``eps`` of LayerNorm in ``layer``, and of RMSNorm in ``rms`` (``epsilon`` and ``epsilon_inside``), unless options give
      them. Elsewhere an ``eps`` that is not the default of its class is dropped with a warning, unless ``epsilon`` is given;
      the options of a norm of Norma are not kept.

    UsageError: there is no layer to replace, a layer normalizes more than one axis, or an option belongs to another type.
    """
    chosen: Tuple[Type[nn.Module], ...] = tuple(kinds) if kinds is not None else (*_token_norms(), Norm)
    found = [(name, module) for name, module in model.named_modules(remove_duplicate=False)
             if name and isinstance(module, chosen) and (where is None or where(name, module))]
    made: Dict[nn.Module, Norm] = {}
    for name, old in found:
        if old not in made:
            made[old] = _replacement(name, old, type, groups, options)
    for name, old in found:
        parent, _, key = name.rpartition(".")
        model.get_submodule(parent)._modules[key] = made[old]
    names = [name for name, _ in found]
    if not names:
        raise UsageError(f"no layer of the classes {', '.join(kind.__name__ for kind in chosen)} in the model")
    for module in model.modules():  # decided when it was created, by its LayerNorms; its fused kernels compute LayerNorm
        if isinstance(module, nn.TransformerEncoder) and any(isinstance(one, Norm) for one in module.modules()):
            module.use_nested_tensor = False
    return names


_SAME_NAME = {"scale": "weight", "weight": "scale"}  # of RMSNorm: in the published module, in PyTorch


def _dtype_of(old: nn.Module) -> torch.dtype:
    return next((param.dtype for param in old.parameters()), torch.float32)


def _epsilon_options(name: str, old: nn.Module, type: str, options: Dict[str, Any]) -> Dict[str, Any]:
    """The options that keep eps of a layer of PyTorch, or a warning that it is dropped."""
    rms: Any = getattr(nn, "RMSNorm", ())  # PyTorch 2.4
    eps: Optional[float] = getattr(old, "eps", getattr(old, "variance_epsilon", None))  # the latter: of transformers
    if isinstance(old, Norm) or "epsilon" in options:
        return {}
    if type == "layer" and isinstance(old, nn.LayerNorm):
        return {"epsilon": eps}
    if type == "rms" and isinstance(old, rms) and "epsilon_inside" not in options:
        return {"epsilon": torch.finfo(_dtype_of(old)).eps if eps is None else eps, "epsilon_inside": True}
    default = inspect.signature(old.__class__).parameters.get("eps")
    if eps is not None and (default is None or eps != default.default):
        warnings.warn(f"replace_norms: eps = {eps} of {name} is not kept; give epsilon for another one than the default of "
                      f"'{type}'", stacklevel=4)
    return {}


def _keep(new: Norm, old: nn.Module) -> None:
    """Copies parameters, and freezes those that the old layer has frozen or lacks."""
    learned = {key: param for key, param in old._parameters.items() if not isinstance(old, Norm) or key in old._learned}
    given = [param for param in learned.values() if param is not None]
    all_frozen = bool(given) and not any(param.requires_grad for param in given)
    for key, param in new.named_parameters():
        name = key if key in old._parameters else _SAME_NAME.get(key, key)
        kept = old._parameters.get(name)
        if kept is not None and kept.shape == param.shape:
            param.data.copy_(kept.data)
        frozen = all_frozen if name not in learned else kept is None or not kept.requires_grad
        if frozen:
            param.requires_grad_(False)


def _replacement(name: str, old: nn.Module, type: str, groups: int, options: Dict[str, Any]) -> Norm:
    options = {**options, **_epsilon_options(name, old, type, options)}
    new = Norm(type, _width_of(name, old), groups=groups, dtype=_dtype_of(old), **options)
    _keep(new, old)
    return new.train(old.training)


# ---- training-inference discrepancy ----

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
def _measuring(model: nn.Module) -> Iterator[None]:
    """Disables dropout, and makes batch norms use batch statistics; the state of all modules is restored afterwards."""
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


def tid(model: nn.Module, loader: Iterable[Any], *, groups: int = 1, kinds: Optional[Iterable[Type[nn.Module]]] = None,
        where: Optional[Callable[[str, nn.Module], bool]] = None, forward: Optional[Callable[[nn.Module, Any], Any]] = None,
        padding_mask: Optional[Callable[[Any], Tensor]] = None) -> List[SiteTID]:
    """Training-inference discrepancy of batch statistics (Wang et al. 2022, equation 5) at the input of every norm of
    any PyTorch model, with fixed parameters, over all batches of ``loader``, which is traversed twice::

        mean, sigma^2   average over the batches of the mean and the variance of each feature
        mean TID        average over the batches of |batch mean - mean| / |sigma|
        variance TID    average over the batches of |batch sigma - sigma| / |sigma|

    and the same for the quadratic mean that PowerNorm divides by, of rows scaled to unit mean square per group.

    loader: batches; a tuple or list is the model's positional arguments, a dict its keyword arguments; forward:
    ``forward(model, batch)`` replaces that call. padding_mask: ``padding_mask(batch)`` is true at padding, in the shape
    of the norms' input without the last axis; the norms of Norma use it, too. kinds, where: the layers, as in
    ``replace_norms``; default: LayerNorm, RMSNorm, BatchNorm1d and the norms of Norma.

    Returns one entry per layer in the order of the model. Parameters, running statistics and mode are unchanged.
    UsageError: no such layer, no batch, or a loader that can be traversed only once, such as a generator.
    """
    chosen: Tuple[Type[nn.Module], ...] = tuple(kinds) if kinds is not None else (*_token_norms(), nn.BatchNorm1d, Norm)
    sites = {name: module for name, module in model.named_modules()
             if isinstance(module, chosen) and (where is None or where(name, module))}
    sums: Dict[str, List[Tensor]] = {}
    ratios: Dict[str, Tensor] = {}
    counts: Dict[str, int] = {}
    overall: Dict[str, _Moments] = {}
    mask: List[Optional[Tensor]] = [None]

    def observe(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            x = inputs[0].detach()
            if isinstance(module, nn.BatchNorm1d) and x.dim() == 3:
                x = x.transpose(1, 2)
            kept = None if mask[0] is None else ~mask[0]
            rows = (x.reshape(-1, x.shape[-1]) if kept is None else x[kept]).double()
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
        with _measuring(model):
            traverse()
            overall = {name: _Moments(*(total / counts[name] for total in values)) for name, values in sums.items()}
            traverse()
    finally:
        for hook in hooks:
            hook.remove()
    if overall and not counts or isinstance(loader, Iterator):
        raise UsageError("loader is traversed twice, and has no batches the second time; give a list or a DataLoader")
    if not ratios:
        raise UsageError("no norm of the model was called: no batch, or no layer of the classes " +
                         ", ".join(kind.__name__ for kind in chosen))
    return [SiteTID(name, *(float(value) / counts[name] for value in ratios[name])) for name in sites if name in ratios]
