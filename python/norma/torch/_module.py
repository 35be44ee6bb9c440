"""``Norm``: a normalization layer as a PyTorch module.

A call uses the kernels of the library (``_kernel``) for float32 on the CPU, and otherwise the formulas in
plain PyTorch (``plain``), which work for every device, type and transform.
"""
from __future__ import annotations

import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from .. import _torch_ops
from .._library import UnsupportedError, UsageError
from .._norms import Layer, LayerSpec, NormType, Vector, norm_types
from . import _kernel, plain

# Shapes of the tensors of the published modules, where they are not [length]; -1: the length, 0: the width.
_SHAPES: Dict[str, Dict[str, Tuple[int, ...]]] = {
    "power": {"running_phi": (1, -1, 1, 1), "ema_gz": (1, -1, 1, 1), "iters": (1,)},
    "mabn": {"buffer_x2": (-1, 0), "buffer_gz": (-1, 0)},
    "un": {"buffer_x2": (-1, 0), "buffer_gz": (-1, 0), "iters": (1,), "skip_counter": (1,)},
    "scale": {"scale": ()},
}
# Types without a counter, which get that of torch.nn.BatchNorm1d.
_BATCH_COUNTER, _WITH_BATCH_COUNTER = "num_batches_tracked", ("batch", "rbn")
# By type: a parameter, and a name that checkpoints of other modules have for it.
_RMS_NAMES = (("scale", "weight"), ("weight", "scale"))
_PUBLISHED_NAMES = {"rms": _RMS_NAMES, "prms": _RMS_NAMES, "scale": (("scale", "g"),)}
_TYPES = torch.float32, torch.float64, torch.bfloat16, torch.float16
_HALF = torch.bfloat16, torch.float16
_OTHER_WIDTHS = {"normalized_shape", "num_features", "num_channels", "hidden_size", "dim"}
_MAX_ROWS = 2**31 - 1  # of a kernel, times the width

_is_compiling: Any = getattr(getattr(torch, "compiler", None), "is_compiling", None)


class _NoEpsilon:
    """``eps`` of a norm of Norma; the name of the class is part of PyTorch's error."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


_NoEpsilon.__name__ = "the eps of a norm of Norma, which computes no LayerNorm (keep_class=False)"
_NO_EPSILON = _NoEpsilon()


def check_tensor(name: str, what: str, x: Any) -> None:
    """TypeError unless x is a tensor. name: of the norm or the function."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}: {what} is a {type(x).__module__}.{type(x).__name__}, expected a torch.Tensor"
        )


def fit_mask(x: Tensor, mask: Tensor) -> Optional[Tensor]:
    """A mask [batch, length] in the shape of the tokens of x: [batch, length, ...], [batch, heads, length] or
    [length, batch]. If there are as many heads as tokens, the strides tell: heads are neighbors in memory."""
    tokens = x.shape[:-1]
    axes = [axis for axis in range(1, len(tokens)) if tokens[axis] == mask.shape[1]]
    if axes and tokens[0] == mask.shape[0]:
        axis = max(axes, key=x.stride)
        shape = [mask.shape[0], *(mask.shape[1] if i == axis else 1 for i in range(1, len(tokens)))]
        return mask.reshape(shape).expand(tokens)
    return mask.t() if tokens == (mask.shape[1], mask.shape[0]) else None


def _shape(spec: LayerSpec, name: str, length: int) -> Tuple[int, ...]:
    known = _SHAPES.get(spec.type.name, {}).get(name, (length,))
    rows = length // spec.width if 0 in known else length
    return tuple(rows if n == -1 else spec.width if n == 0 else n for n in known)


class Norm(nn.Module):
    """A normalization layer of any type: ``Norm("power", 512, groups=8, warmup=4000)``.

    type: name of a type, ``norma.norm_types()``, or its title, such as "PowerNorm"; width: number of
    features; groups: number of groups of features, for GroupNorm and group scaling (usually the number of
    attention heads); device, dtype: of the parameters, as in other modules; options: those of
    ``norma.norm_types()[type].options``.

    statistics: "process", or "group": batch statistics over the tokens of all processes of ``process_group``
    (default: all processes), with sums and their gradients exchanged in the forward and in the backward pass.
    Every process must call the module, also one that has no tokens.

    Input and output have the shape ``[..., width]``; all dimensions except the last one are token dimensions.
    In training mode, types with batch statistics compute them over all tokens of the call except padding, and
    update the running statistics. In evaluation mode they use the running statistics, and the output of a
    token does not depend on other tokens. Parameters and buffers have the names and shapes of the published
    modules, so their ``state_dict`` can be loaded and vice versa. PowerNorm's ``warmup`` is counted in
    forward passes and should equal the warm-up of the learning rate; the default is that of the published
    module, 10000.

    float32 tensors on the CPU are normalized by the kernels of Norma, all others by plain PyTorch: other
    devices, float64, bfloat16, float16, ``torch.func``, derivatives of gradients, ``torch.export``, ONNX.
    ``kernel = False`` switches the kernels off. Statistics are computed in float32 at least, and running
    statistics stay in float32 in a module of ``bfloat16()``.

    UsageError (a ValueError): unknown type, option or value, a width that the groups do not divide, a wrong
    shape. UnsupportedError: an input that is not dense and of floating point, or not of the module's
    precision; ``torch.func`` of a type with running statistics in training mode. TypeError: x is not a
    tensor.
    """

    def __new__(cls, *given: Any, **options: Any) -> Norm:
        if "width" not in options:
            for name in _OTHER_WIDTHS & options.keys():
                raise UsageError(f"{cls.__name__}: {name} is called width here")
        if len(given) > 1 + cls._shows_type:
            raise UsageError(f"{cls.__name__}: options after the width need their names, "
                             "such as epsilon=1e-6")
        return super().__new__(cls)

    def __init__(self, type: str, width: int, *, groups: int = 1, device: Any = None,
                 dtype: Optional[torch.dtype] = None,
                 statistics: str = "process", process_group: Any = None, **options: Any) -> None:
        nn.Module.__init__(self)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype not in _TYPES:
            raise UsageError(f"dtype {dtype}: expected {', '.join(map(str, _TYPES))}")
        if isinstance(width, (tuple, list)) and len(width) == 1:  # as normalized_shape of PyTorch
            width = width[0]
        self._spec = LayerSpec.of(type, width, groups, options)
        self._padding_mask: Optional[Tensor] = None
        self._model_mask: Optional[Tensor] = None  # [batch, length], of the call of a model
        self._mask_owner: Optional[int] = None  # the call that has set it and has not ended
        self.kernel = True  #: False: plain PyTorch also for float32 on the CPU
        self.statistics, self.process_group = statistics, process_group
        self._attributes: Dict[str, str] = {}
        self._offset = 0.0
        #: values of frozen parameters that a replaced layer did not have; they are not in the state_dict
        self._constants: Dict[str, float] = {}
        self._forget()
        layer = self._new_layer(dtype)
        self._options = self._spec.values()
        kept = torch.float32 if dtype in _HALF else dtype  # of running statistics
        for name, vector in layer.params.items():
            self.register_parameter(name, nn.Parameter(self._copy(layer, name, vector, device, dtype),
                                                       requires_grad=bool(vector.grad)))
        for name, vector in layer.state.items():
            self.register_buffer(name, self._copy(layer, name, vector, device, kept))
        counters = list(layer.counters) or ([_BATCH_COUNTER] if self.type.name in _WITH_BATCH_COUNTER else [])
        for name in counters:
            self.register_buffer(name, torch.zeros(_SHAPES.get(self.type.name, {}).get(name, ()),
                                                   dtype=torch.int64, device=device))
        self._names = tuple(layer.params), (*layer.state, *counters)
        self._sizes = tuple(vector.length for vector in (*layer.params.values(), *layer.state.values()))
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
    def eps(self) -> Any:
        """No number, and not equal to itself: torch.nn.TransformerEncoderLayer uses fused kernels, which
        compute LayerNorm, if the norms of a layer have equal ``eps``. A program that replaces subclasses of
        LayerNorm by its own then fails, instead of computing another norm."""
        return _NO_EPSILON

    @property
    def normalized_shape(self) -> Tuple[int, ...]:
        """(width,), as in torch.nn.LayerNorm."""
        return (self._spec.width,)

    @property
    def elementwise_affine(self) -> bool:
        """Whether there are parameters, as in torch.nn.LayerNorm."""
        return bool(self._parameters)

    @property
    def statistics(self) -> str:
        """Rows of batch statistics: those of this "process", or those of all processes of the "group"."""
        return self._statistics

    @statistics.setter
    def statistics(self, value: str) -> None:
        if value not in ("process", "group"):
            raise UsageError(f"statistics = {value!r}: expected 'process' or 'group'")
        self._statistics = value

    @property
    def penalty(self) -> Tensor:
        """Penalty of the last forward pass in training mode, a scalar with gradient; 0 for types without
        one."""
        return self._penalty if self._penalty is not None else torch.zeros(())

    # ---- memory of the layer: parameters and state are the module's tensors, and are copied for each call
    # ----

    def _forget(self) -> None:
        self._layers: Dict[int, Layer] = {}  # by number of threads
        self._calls: Dict[int, Any] = {}  # the same for _kernel.calls
        self._penalty: Optional[Tensor] = None

    def _new_layer(self, dtype: torch.dtype = torch.float32) -> Layer:
        return Layer(self._spec, dtype == torch.float64, 1)

    def _layer(self) -> Layer:
        """The layer of the kernels."""
        threads = torch.get_num_threads()
        if threads not in self._layers:
            self._layers[threads] = layer = Layer(self._spec, False, threads)
            if _kernel.calls is not None:
                self._calls[threads] = _kernel.new_calls(layer, self.type.has_penalty)
        return self._layers[threads]

    def _view(self, layer: Layer, name: str, vector: Vector) -> Tensor:
        """The memory of a vector."""
        memory = torch.frombuffer(layer.memory(vector.address, vector.length),
                                  dtype=torch.float64 if layer.double else torch.float32)
        return memory.reshape(_shape(self._spec, name, vector.length))

    def _copy(self, layer: Layer, name: str, vector: Vector, device: Any, dtype: torch.dtype) -> Tensor:
        """A copy; by default on the default device, such as "meta"."""
        view = self._view(layer, name, vector)
        return torch.empty(view.shape, dtype=dtype, device=device).copy_(view)

    def _named_tensors(self) -> Tuple[List[Any], List[Any]]:
        """Parameters and buffers in the order of the layer; None: deleted by the caller. A parameter may be
        computed by torch.nn.utils.parametrize."""
        if not self._attributes and not self._offset:
            return [getattr(self, name) for name in self._names[0]], [
                self._buffers[name] for name in self._names[1]
            ]
        params = [getattr(self, self._attributes.get(name, name)) for name in self._names[0]]
        if self._offset:  # the gain is the stored weight + 1
            params[0] = (params[0].float() if params[0].dtype in _HALF else params[0]) + self._offset
        return params, [self._buffers[name] for name in self._names[1]]

    def _rename(self, name: str, attribute: str) -> None:
        """A parameter of the layer becomes another attribute, as ``weight`` of RMSNorm."""
        self._parameters = type(self._parameters)((attribute if key == name else key, value)
                                                  for key, value in self._parameters.items())
        self._attributes = {**self._attributes, name: attribute}

    def reset_parameters(self) -> None:
        """Sets parameters, running statistics and counters to their initial values, in place, also after
        ``to_empty``."""
        layer = self._new_layer()
        vectors = {**layer.params, **layer.state}
        names = {attribute: name for name, attribute in self._attributes.items()}
        with torch.no_grad():
            for key, tensor in (*self._parameters.items(), *self._buffers.items()):
                name = names.get(key, key)
                if tensor is not None and name in vectors:
                    tensor.copy_(self._view(layer, name, vectors[name]))
                    if self._offset and name == self._names[0][0]:
                        tensor.sub_(self._offset)
                elif tensor is not None:
                    tensor.zero_()  # a counter
        self._penalty = None

    def _create_constants(self, device: Any) -> None:
        """Gives the parameters that are not in the state_dict their values; device: without other tensors."""
        tensors = [one for one in (*self._parameters.values(), *self._buffers.values())
                   if one is not None and not one.is_meta]
        for key, value in self._constants.items():
            old = self._parameters[key]
            if old is not None:
                place = tensors[0].device if tensors else device
                self._parameters[key] = nn.Parameter(
                    torch.full(old.shape, value, dtype=old.dtype, device=place), requires_grad=False)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """As in other modules, but running statistics stay in float32 where parameters become bfloat16 or
        float16."""
        before = dict(self._buffers)
        super()._apply(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        for name, tensor in self._buffers.items():
            old = before.get(name)
            if tensor is not None and tensor.dtype in _HALF:
                exact = tensor if old is None or old.dtype in _HALF or old.is_meta else old
                self._buffers[name] = exact.to(device=tensor.device, dtype=torch.float32)
        return self

    # ---- forward ----

    def _check(self, x: Tensor) -> None:
        if x.dtype not in _TYPES or x.layout != torch.strided:
            raise UnsupportedError(
                f"norm '{self.type.name}': x is {x.dtype}, {x.layout}; expected a dense tensor of floating "
                "point"
            )
        if x.dim() < 1 or x.shape[-1] != self.width:
            channels = "; move the channels to the end: x.movedim(1, -1)"
            raise UsageError(
                f"norm '{self.type.name}': x has the shape {list(x.shape)}, expected [..., {self.width}]"
                + (channels if x.dim() > 2 and x.shape[1] == self.width else "")
            )
        for tensor in (*self._parameters.values(), *self._buffers.values()):
            if (
                tensor is not None
                and tensor.is_floating_point()
                and (tensor.dtype == torch.float64) != (x.dtype == torch.float64)
            ):
                raise UnsupportedError(f"norm '{self.type.name}': x is {x.dtype}, the module {tensor.dtype}")

    def _fits_kernel(self, x: Tensor) -> bool:
        """Whether the kernels can be used; decided by what is known while a graph is built."""
        if (
            not self.kernel
            or x.dtype != torch.float32
            or x.device.type != "cpu"
            or (self._group() is not None)
        ):
            return False
        tensors = [one for one in (*self._parameters.values(), *self._buffers.values()) if one is not None]
        if any(one.device.type != "cpu" or (one.is_floating_point() and one.dtype != torch.float32)
               for one in tensors):
            return False
        if _torch_ops.is_exporting() or _torch_ops.is_tracing():
            return False
        if _torch_ops.is_building_graph():
            return _torch_ops.available
        params = [param for param in self._named_tensors()[0] if param is not None]
        return (
            x.numel() <= _MAX_ROWS
            and not _torch_ops.have_tangent(x, *params)
            and not _torch_ops.is_transformed(x, *params)
        )

    def _group(self) -> Any:
        """The process group of batch statistics; None: this process alone."""
        if self._statistics == "process" or not self.type.uses_batch or not self.training:
            return None
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return None
        return self.process_group if self.process_group is not None else distributed.group.WORLD

    def _by_page(
        self,
        x: Tensor,
        mask: Optional[Tensor],
        params: Sequence[Optional[Tensor]],
        state: Sequence[Tensor],
        buffers: Sequence[Tensor],
        training: bool,
    ) -> Tuple[Tensor, Optional[Tensor], Dict[str, Tensor]]:
        """y, the penalty and the new state, by plain PyTorch. state: before the pass; buffers: those that the
        backward pass changes."""
        page, compute = plain.pages[self.type.name], (
            torch.float64 if x.dtype == torch.float64 else torch.float32
        )
        given = [one for one in params if one is not None]
        for name, size, tensor in zip((*self._names[0], *self._names[1]), self._sizes, (*params, *state)):
            if tensor is None or tensor.numel() != size:
                raise UsageError(f"norm '{self.type.name}': {name} does not have {size} elements")
        rows = x.reshape(-1, self.width).to(compute)
        kept = None if mask is None else ~mask.reshape(-1, 1)
        if kept is not None:
            rows = torch.where(kept, rows, torch.zeros_like(rows))
        call = plain.Call({name: one.to(compute).reshape(-1) for name, one in zip(self._names[0], given)},
                          {name: self._as_vector(name, one, compute, training) for name,
                           one in zip(self._names[1], state)}, self._options,
                          self._spec.groups, plain.Rows(rows, kept, self._group() if training else None),
                          dict(zip(self._names[1], buffers)))
        new: Dict[str, Tensor] = {}
        penalty = None
        if page.token is not None:
            y = page.token(rows, call)
        elif training:
            assert page.train is not None
            y, new, penalty = page.train(rows, call)
            if _BATCH_COUNTER in self._names[1] and _BATCH_COUNTER not in new:
                new = {**new, _BATCH_COUNTER: call.state[_BATCH_COUNTER] + 1}
            fresh = call.rows.any
            if isinstance(fresh, Tensor):
                new = {name: torch.where(fresh, value, call.state[name]) for name, value in new.items()}
                penalty = torch.where(fresh, penalty,
                                      torch.zeros_like(penalty)) if penalty is not None else None
            elif not fresh:
                new, penalty = {}, torch.zeros_like(penalty) if penalty is not None else None
        else:
            assert page.infer is not None
            y = page.infer(rows, call)
        if kept is not None:
            y = torch.where(kept, y, torch.zeros_like(y))
        return y.reshape(x.shape).to(x.dtype), penalty, new

    def _as_vector(self, name: str, tensor: Tensor, compute: torch.dtype, changes: bool) -> Tensor:
        """A copy if a graph may keep it: later calls change the buffer."""
        if not tensor.is_floating_point():
            return (_torch_ops.snapshot(tensor) if changes else tensor.detach()).reshape(())
        kept = (
            _torch_ops.snapshot(tensor)
            if changes
            else tensor.detach().to(compute, copy=torch.is_grad_enabled())
        )
        return kept.to(compute).reshape((-1, self.width) if name.startswith("buffer") else (-1,))

    def _plain(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        page, (params, state) = plain.pages[self.type.name], self._named_tensors()
        if not _torch_ops.is_building_graph():
            self._warn_of_one_token(x, mask)
        if self.training and page.train is not None and not _torch_ops.is_building_graph():
            self._check_transforms(x, page, params)
        y, penalty, new = self._by_page(x, mask, params, state, state, self.training)
        with torch.no_grad():
            for name, value in new.items():
                buffer = self._buffers[name]
                assert buffer is not None
                buffer.copy_(value.detach().reshape(buffer.shape))
        if self.type.has_penalty:
            self._penalty = penalty if self.training else None
        return y

    def _check_transforms(self, x: Tensor, page: plain.Page, params: Sequence[Optional[Tensor]]) -> None:
        """In training mode: a transform cannot change running statistics, which vmap would even change for
        every sample."""
        given = [one for one in params if one is not None]
        if _torch_ops.is_transformed(x, *given) or (page.own_backward and _torch_ops.have_tangent(x, *given)):
            raise UnsupportedError(
                f"norm '{self.type.name}': no transforms of torch.func (vmap, grad, ...) in training mode, "
                "which "
                "changes running statistics; use eval(), or torch.autograd"
            )

    def _by_kernels(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        if _torch_ops.is_building_graph():
            params, state = self._named_tensors()
            y, penalty = _torch_ops.normalize(x, params, state, mask, _torch_ops.text_of(self._spec),
                                              self.training, self._of_gradients)
            if self.type.has_penalty:
                self._penalty = penalty if self.training else None
            return y
        if mask is None:
            return _kernel.normalize(self, x)
        kept = ~mask
        return torch.zeros_like(x).masked_scatter(kept.unsqueeze(-1), _kernel.normalize(self, x[kept]))

    def _mask_for(self, x: Tensor, mask: Tensor) -> Optional[Tensor]:
        """The mask of a model's call in the shape of the tokens of x; a warning if it does not fit."""
        found = fit_mask(x, mask)
        if found is not None:
            return found
        if self.training and self.type.uses_batch and not _torch_ops.is_building_graph() and bool(mask.any()):
            warnings.warn(
                f"norm '{self.type.name}': its batch statistics include padding: x has the shape "
                f"{list(x.shape)}, the "
                f"model's mask {list(mask.shape)}; give the mask with norma.torch.padding"
            )
        return None

    def _warn_of_one_token(self, x: Tensor, mask: Optional[Tensor]) -> None:
        """Where torch.nn.BatchNorm1d raises a ValueError. The mask of a device is not waited for."""
        if not self.training or "running_mean" not in self._buffers or self._group() is not None:
            return
        if (x.numel() == self.width if mask is None
                else mask.device.type == "cpu" and mask.numel() - int(mask.sum()) == 1):
            warnings.warn(f"norm '{self.type.name}': the batch has one token, so its variance is undefined "
                          "and y does not depend on x; use larger batches, or eval()")

    @_torch_ops.not_compiled
    def _without_graph(self, x: Tensor, mask: Optional[Tensor]) -> Tensor:
        return self._by_kernels(x, mask) if self._fits_kernel(x) else self._plain(x, mask)

    def forward(self, x: Tensor, padding_mask: Optional[Tensor] = None) -> Tensor:
        """y of the shape and type of x.

        x: [..., width]. padding_mask: bool, the shape of x without the last axis, true at padding, as
        ``key_padding_mask`` of PyTorch; default: that of ``norma.torch.padding``. Padding is excluded from
        all statistics, and y and the gradient are 0 there, whatever x is there. Within ``torch.autocast``,
        bfloat16 and float16 inputs are converted to float32, and y is float32.
        """
        if _kernel.calls is not None and padding_mask is None and not _is_compiling():
            y: Optional[Tensor] = _kernel.calls.forward(self, x)
            if y is not None:
                return y
        check_tensor(f"norm '{self.type.name}'", "x", x)
        if _torch_ops.is_autocast_type(x):
            x = x.float()
        self._check(x)
        mask = self._padding_mask if padding_mask is None else padding_mask
        if mask is None and self._model_mask is not None:
            mask = self._mask_for(x, self._model_mask)
        elif mask is not None:
            check_tensor(f"norm '{self.type.name}'", "padding_mask", mask)
            if mask.dtype != torch.bool or mask.shape != x.shape[:-1]:
                raise UsageError(
                    f"norm '{self.type.name}': padding_mask is {mask.dtype} {list(mask.shape)}, expected "
                    f"torch.bool {list(x.shape[:-1])}"
                )
        if not _torch_ops.is_building_graph():
            return self._without_graph(x, mask)
        if self._fits_kernel(x):
            return self._by_kernels(x, mask)
        if plain.pages[self.type.name].own_backward and self.training and not _torch_ops.available:
            return self._without_graph(x, mask)
        return self._plain(x, mask)

    # ---- copies and state ----

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state.update(_layers={}, _calls={}, _penalty=None, _padding_mask=None, _model_mask=None,
                     _mask_owner=None, process_group=None, _spec=(self.type.name, *self._spec[1:]))
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        name, *rest = state["_spec"]
        spec = LayerSpec(norm_types()[name], *rest)
        added: Dict[str, Any] = {"kernel": True, "_calls": {}, "_model_mask": None, "_mask_owner": None,
                                 "_statistics": "process",
                                 "process_group": None, "_attributes": {}, "_offset": 0.0,
                                 "_constants": {}}
        added.update(state, _spec=spec, _options=spec.values())
        super().__setstate__(added)  # type: ignore[no-untyped-call]
        if "_sizes" not in state:
            layer = self._new_layer()
            self._sizes = tuple(vector.length for vector in (*layer.params.values(), *layer.state.values()))

    def _save_to_state_dict(self, destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key, value in self._constants.items():
            param = self._parameters.get(key)
            if param is None or param.requires_grad:
                continue
            if param.is_meta or bool((param == value).all()):
                destination.pop(prefix + key, None)

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, *args: Any) -> None:
        own = {**self._parameters, **self._buffers}
        for name, given in _PUBLISHED_NAMES.get(self.type.name, ()):
            if (name in own and prefix + name not in state_dict
                    and prefix + given in state_dict and given not in own):
                state_dict[prefix + name] = state_dict.pop(prefix + given)
        if self.type.name == "layer" and prefix + "weight" in state_dict:  # of LayerNorm(bias=False)
            state_dict.setdefault(prefix + "bias", torch.zeros_like(state_dict[prefix + "weight"]))
        for name, tensor in own.items():
            found = state_dict.get(prefix + name)
            if tensor is None:
                continue
            if isinstance(found, Tensor) and found.shape != tensor.shape and found.numel() == tensor.numel():
                state_dict[prefix + name] = found.reshape(tensor.shape)
            elif found is None and name == _BATCH_COUNTER:
                state_dict[prefix + name] = tensor.detach().clone()
            elif found is None and name in self._constants:
                device = "cpu" if tensor.is_meta else tensor.device
                state_dict[prefix + name] = torch.full(tensor.shape, self._constants[name],
                                                       dtype=tensor.dtype, device=device)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        own = f"{self.type.name!r}, " if type(self)._shows_type else ""
        groups = f", groups={self._spec.groups}" if self._spec.groups != 1 else ""
        settings = ", " + ", ".join(self._spec.settings.split()) if self._spec.settings else ""
        statistics = f", statistics={self._statistics!r}" if self._statistics != "process" else ""
        return f"{own}{self.width}{groups}{settings}{statistics}"

    _shows_type = True


Norm.__module__ = "norma.torch"
