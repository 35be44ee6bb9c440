"""``norma.Norm``: a normalization layer for numpy arrays."""
from __future__ import annotations

import os
from ctypes import byref, c_int64
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from ._handle import Closeable
from ._library import MAX_THREADS, UsageError, check, encoded_path, integer, library
from ._norms import Layer, LayerSpec, NormType, Pass
from ._records import ErrorText

if TYPE_CHECKING:
    import numpy as np


class Norm(Closeable):
    """A normalization layer with its parameters, gradients and running state, for numpy arrays.

    Arrays have the shape ``[..., width]`` and the type ``dtype``; every index but the last is a token. They
    are read and written in place if they are contiguous, otherwise copied. Types with batch statistics
    compute them over all tokens of a call, except those at which ``padding_mask`` is true.

    type: name of a type, ``norma.norm_types()``; width: number of features; groups: number of groups of
    features, for GroupNorm and group scaling (usually the number of attention heads); threads: 0: one per
    core; dtype: ``float32``, or ``float64`` for checks (slow); name: of the layer in messages; options: of
    ``norma.norm_types()[type].options``.

    UsageError: unknown type, option or value, or a width that the groups do not divide.
    """

    def __init__(self, type: str, width: int, *, groups: int = 1, threads: int = 0, dtype: Any = "float32",
                 name: Optional[str] = None, **options: Any) -> None:
        import numpy
        self._numpy = numpy
        self.dtype = numpy.dtype(dtype)
        if self.dtype not in (numpy.float32, numpy.float64):
            raise UsageError(f"dtype {self.dtype}: expected float32 or float64")
        threads = integer("threads", threads, 0, MAX_THREADS)
        layer = Layer(LayerSpec.of(type, width, groups, options), self.dtype == numpy.float64, threads, name)
        self._owned = (layer, Pass(layer))
        self._x: Optional["np.ndarray"] = None  # of the pending forward pass, without padding
        self._kept: Optional["np.ndarray"] = None  # its padding mask, inverted

    @property
    def _layer(self) -> Layer:
        layer: Layer = self._handle[0]
        return layer

    @property
    def type(self) -> NormType:
        """The type of the layer."""
        return self._layer.spec.type

    @property
    def width(self) -> int:
        """Number of features."""
        return self._layer.spec.width

    # ---- vectors ----

    def _view(self, address: int, length: int) -> "np.ndarray":
        return self._numpy.ctypeslib.as_array(self._layer.memory(address, length))

    @property
    def params(self) -> Dict[str, "np.ndarray"]:
        """The parameters by name, such as ``weight`` [width]. The arrays are the layer's memory: writing
        changes it."""
        return {name: self._view(v.address, v.length) for name, v in self._layer.params.items()}

    @property
    def grads(self) -> Dict[str, "np.ndarray"]:
        """Gradients of the learned parameters, to which ``backward`` adds; the layer's memory."""
        return {name: self._view(v.grad, v.length) for name, v in self._layer.params.items() if v.grad}

    @property
    def state(self) -> Dict[str, "np.ndarray"]:
        """Running statistics by name, such as ``running_phi`` [width]; the layer's memory."""
        return {name: self._view(v.address, v.length) for name, v in self._layer.state.items()}

    @property
    def counters(self) -> Dict[str, int]:
        """Numbers of updates by name, such as ``iters``; a copy, see ``set_counter``."""
        return {name: c_int64.from_address(address).value for name, address in self._layer.counters.items()}

    def set_counter(self, name: str, value: int) -> None:
        """Sets a counter. UsageError: none of that name, or a negative value."""
        if name not in self._layer.counters:
            raise UsageError(
                f"counter '{name}' = {value}; counters are {', '.join(self._layer.counters) or 'none'}"
            )
        value = integer(f"counter '{name}'", value, 0, 2**63 - 1)
        c_int64.from_address(self._layer.counters[name]).value = value

    def zero_grads(self) -> None:
        """Sets the gradients of the parameters to 0."""
        layer = self._layer
        with layer.backend.lock:
            layer.zero_grads()

    # ---- passes ----

    def _array(self, x: Any, what: str, dtype: Any = None) -> "np.ndarray":
        if isinstance(x, self._numpy.ma.MaskedArray):
            raise UsageError(
                f"{what} is a masked array; padding_mask excludes tokens, x.filled() ignores the mask"
            )
        return self._numpy.asarray(x, dtype)

    def _input(self, x: Any, what: str, shape: Any = None) -> "np.ndarray":
        if not isinstance(x, self._numpy.ndarray):
            x = self._array(x, what, self.dtype)
        x = self._array(x, what)
        if x.dtype != self.dtype:
            raise UsageError(f"{what} is {x.dtype}, the layer computes in {self.dtype}")
        if shape is not None and x.shape != shape:
            raise UsageError(f"{what}: shape {x.shape}, expected {shape}")
        if x.ndim < 1 or x.shape[-1] != self.width:
            raise UsageError(f"{what}: shape {x.shape}, expected [..., {self.width}]")
        return self._numpy.ascontiguousarray(x)

    def _kept_tokens(self, x: "np.ndarray", padding_mask: Any) -> Optional["np.ndarray"]:
        if padding_mask is None or not self.type.uses_batch:
            return None
        mask = self._array(padding_mask, "padding_mask")
        if mask.dtype != bool or mask.shape != x.shape[:-1]:
            raise UsageError(f"padding_mask: {mask.dtype} {mask.shape}, expected bool {x.shape[:-1]}")
        return ~mask

    def _run(self, training: bool, x: Any, padding_mask: Any) -> "np.ndarray":
        x = self._input(x, "x")
        kept = self._kept_tokens(x, padding_mask)
        packed = x if kept is None else x[kept]
        y = self._numpy.empty_like(packed)
        rows = packed.size // self.width
        layer, used = self._handle
        if rows:
            with layer.backend.lock:
                used.forward(training, rows, packed.ctypes.data, y.ctypes.data)
        self._x, self._kept = packed, kept
        return y if kept is None else self._scatter(y, kept)

    def _scatter(self, packed: "np.ndarray", kept: "np.ndarray") -> "np.ndarray":
        out = self._numpy.zeros(kept.shape + (self.width,), self.dtype)
        out[kept] = packed
        return out

    def forward(self, x: "np.ndarray", padding_mask: Any = None) -> "np.ndarray":
        """y of the shape of x, in training mode: updates the running state. x must stay unchanged until
        ``backward``.

        padding_mask: bool, the shape of x without the last axis, true at padding, where y and dx are 0; types
        that normalize each token ignore it. UsageError: wrong shape or type. OutOfMemoryError.
        """
        return self._run(True, x, padding_mask)

    def infer(self, x: "np.ndarray", padding_mask: Any = None) -> "np.ndarray":
        """y of the shape of x, at inference: running statistics, which stay unchanged. ``backward`` may
        follow."""
        return self._run(False, x, padding_mask)

    def backward(self, dy: "np.ndarray", penalty_grad: float = 1.0) -> "np.ndarray":
        """dx, the gradient with respect to x of the last ``forward`` or ``infer``; adds to ``grads``.

        dy: gradient with respect to y, of the same shape. penalty_grad: derivative of the loss with respect
        to ``penalty``. UsageError: no forward pass before it, or another shape.
        """
        layer, used = self._handle
        if self._x is None:
            raise UsageError("backward pass without a preceding forward pass")
        x, kept, self._x = self._x, self._kept, None
        dy = self._input(dy, "dy", x.shape if kept is None else kept.shape + (self.width,))
        packed = dy if kept is None else dy[kept]
        dx = self._numpy.empty_like(packed)
        if x.size:
            with layer.backend.lock:
                used.backward(x.ctypes.data, packed.ctypes.data, penalty_grad, dx.ctypes.data)
        return dx if kept is None else self._scatter(dx, kept)

    @property
    def penalty(self) -> float:
        """Penalty of the last ``forward`` (Regularized BatchNorm); 0 for other types."""
        return float(self._handle[1].penalty)

    # ---- files ----

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes parameters, state and counters to a safetensors file. FileError."""
        self._file(library().nm_norm_save, path)

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Reads a file of ``save``. MismatchError: another type or width; FormatError, FileError."""
        self._file(library().nm_norm_load, path)

    def _file(self, function: Any, path: Any) -> None:
        err, layer = ErrorText(), self._layer
        with layer.backend.lock:
            check(function(layer.handle, encoded_path("path", path), byref(err)), err)

    def close(self) -> None:
        """Frees the memory of the layer. Arrays of ``params``, ``grads`` and ``state`` that are still used
        keep it. Later calls raise UsageError."""
        super().close()
        self._x = self._kept = None

    def __repr__(self) -> str:
        if self._owned is None:
            return "<norma.Norm, closed>"
        spec = self._layer.spec
        return f"norma.Norm({spec.type.name!r}, {spec.width}, groups={spec.groups}" + \
            (f", settings={spec.settings!r})" if spec.settings else ")")
