"""Normalization layers over plain memory: the table of types, and layers of ``norma/norm.h``."""
from __future__ import annotations

import contextlib
import ctypes
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._handle import finalize
from ._library import (Backend, ErrorText, NormSite, NormTypeHead, UsageError, backend, check, encoded, integer, library)

_USES_BATCH, _HAS_STATE, _APPROX_GRAD, _HAS_PENALTY = 1, 2, 4, 8  # enum nm_norm_traits

# Where a model's training run would give the length of the warm-up: the defaults of the published modules.
_WARMUP = {"power": 10000, "mabn": 100, "un": 4000}


class NormOption(NamedTuple):
    """An option of a type of norm: a row of ``norma train --help all``."""
    default: str  #: as text
    choices: Optional[str]  #: "a|b|c"; None: a number, a Boolean or a text
    minimum: float  #: of a number
    maximum: float  #: of a number, inclusive
    help: str  #: one line


class NormType(NamedTuple):
    """A type of norm, such as ``power``."""
    name: str  #: as in ``norma.Norm(name, width)``
    title: str  #: as in the paper
    formula: str  #: of the forward pass
    source: str  #: the paper, and the released code
    uses_batch: bool  #: training uses statistics over the tokens of a batch
    has_state: bool  #: running statistics
    approximate_gradient: bool  #: by design, backward is not the exact gradient
    has_penalty: bool  #: a term of the loss
    options: Dict[str, NormOption]  #: by name


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _read_options(rows: Any) -> Dict[str, NormOption]:
    options = {}
    i = 0
    while rows and rows[i].name:
        row = rows[i]
        options[_text(row.name)] = NormOption(_text(row.initial), _text(row.choices) or None, row.min, row.max,
                                              _text(row.help))
        i += 1
    return options


_types: Dict[str, NormType] = {}


def norm_types() -> Mapping[str, NormType]:
    """The types of norms by name: ``norma.norm_types()["power"].formula``."""
    if not _types:
        table = ctypes.cast(ctypes.addressof(c_void_p.in_dll(library().loaded, "nm_norm_types")),
                            POINTER(POINTER(NormTypeHead)))
        i = 0
        while table[i]:
            head = table[i].contents
            _types[_text(head.name)] = NormType(
                _text(head.name), _text(head.title), _text(head.formula), _text(head.source),
                bool(head.traits & _USES_BATCH), bool(head.traits & _HAS_STATE), bool(head.traits & _APPROX_GRAD),
                bool(head.traits & _HAS_PENALTY), _read_options(head.options))
            i += 1
    return _types


def norm_type(name: str) -> NormType:
    """The type of that name. UsageError: there is none."""
    types = norm_types()
    if name not in types:
        raise UsageError(f"unknown norm '{name}'; available: {', '.join(types)}")
    return types[name]


def _setting(value: Any) -> str:
    text = ("true" if value else "false") if isinstance(value, bool) else repr(float(value)) if isinstance(value, float) \
        else str(value)
    if not text or len(text.split()) != 1 or text.split()[0] != text or "\0" in text:
        raise UsageError(f"{value!r}: expected one word")
    return text


class LayerSpec(NamedTuple):
    """What defines a layer besides its parameters and its state."""
    type: NormType
    width: int
    groups: int
    settings: str  # "key=value key=value"
    warmup_updates: int

    @staticmethod
    def of(type: str, width: int, groups: int, options: Mapping[str, Any]) -> "LayerSpec":
        """UsageError: unknown type, or numbers out of range. Options are checked when a layer is created."""
        found = norm_type(type)
        width, groups = integer("width", width, 1, 2**31 - 1), integer("groups", groups, 1, 2**31 - 1)
        settings = dict(options)
        if "groups" in found.options and groups != 1:
            settings["groups"] = groups
        text = " ".join(f"{key}={_setting(value)}" for key, value in settings.items())
        return LayerSpec(found, width, groups, text, _WARMUP.get(type, 0))


class Vector(NamedTuple):
    """A parameter, its gradient, or a running vector: memory of a layer."""
    address: int
    length: int
    grad: Optional[int]  # address; None: not learned


def _free(lib: Any, layer: int, passes: List[int], owner: Any) -> None:
    del owner  # what the memory belongs to lives until here
    for one in passes:
        lib.nm_norm_pass_free(one)
    lib.nm_norm_free(layer)


class Layer:
    """An nm_norm: one layer on one backend, with its memory."""

    def __init__(self, spec: LayerSpec, double: bool, threads: int, name: Optional[str] = None) -> None:
        lib, err, handle = library(), ErrorText(), c_void_p()
        self.spec, self.double = spec, double
        self.element = 8 if double else 4
        self.backend: Backend = backend(double, threads)
        self.passes: List[Pass] = []  # that no caller uses
        self.pass_handles: List[int] = []  # of all passes
        site = NormSite(encoded("name", name or spec.type.name), spec.width, spec.groups, 0, spec.warmup_updates, 0)
        with self.backend.lock:
            check(lib.nm_norm_create(byref(handle), self.backend.handle, spec.type.name.encode(),
                                     spec.settings.encode(), byref(site), byref(err)), err)
        self.handle: int = handle.value or 0
        finalize(self, _free, lib, self.handle, self.pass_handles, self.backend)
        self.params = {n: self._vector(n, lib.nm_norm_param, lib.nm_norm_param_grad)
                       for n in self._names(lib.nm_norm_param_name)}
        self.state = {n: self._vector(n, lib.nm_norm_state, None) for n in self._names(lib.nm_norm_state_name)}
        self.of_gradients = tuple(i for i, n in enumerate(self.state)
                                  if lib.nm_norm_state_of_gradients(self.handle, n.encode()))  # changed by the backward pass
        self.counters = {n: int(ctypes.cast(lib.nm_norm_counter(self.handle, n.encode()), c_void_p).value or 0)
                         for n in self._names(lib.nm_norm_counter_name)}

    def _names(self, function: Any) -> List[str]:
        names: List[str] = []
        while function(self.handle, len(names)):
            names.append(_text(function(self.handle, len(names))))
        return names

    def _vector(self, name: str, find: Any, find_grad: Any) -> Vector:
        length = c_int32()
        address = find(self.handle, name.encode(), byref(length))
        return Vector(address, length.value, find_grad(self.handle, name.encode(), None) if find_grad else None)

    def memory(self, address: int, length: int) -> Any:
        """A ctypes array over a vector, which keeps the layer alive."""
        array: Any = ((c_double if self.double else c_float) * length).from_address(address)
        array.layer = self
        return array

    def infer(self, rows: int, x: int, y: int) -> None:
        err = ErrorText()
        with self.backend.lock:
            check(library().nm_norm_infer(self.handle, rows, x, y, byref(err)), err)

    def counter_values(self) -> List[int]:
        return [c_int64.from_address(address).value for address in self.counters.values()]

    def set_counters(self, values: Sequence[int]) -> None:
        for address, value in zip(self.counters.values(), values):
            c_int64.from_address(address).value = value

    def zero_grads(self) -> None:
        library().nm_norm_zero_grads(self.handle)

    def acquire_pass(self) -> "Pass":
        """A pass for the caller alone, until release_pass. Without a lock: the garbage collector may call release_pass
        meanwhile, in the same thread."""
        try:
            return self.passes.pop()
        except IndexError:
            return Pass(self)

    @contextlib.contextmanager
    def borrowed_pass(self) -> Iterator["Pass"]:
        """Context manager: a pass until its end."""
        used = self.acquire_pass()
        try:
            yield used
        finally:
            self.release_pass(used)

    def release_pass(self, used: "Pass") -> None:
        self.passes.append(used)


class Pass:
    """An nm_norm_pass: a forward pass and its backward pass. Callers hold the layer and its lock.

    Its memory is freed with that of the layer, and not when the garbage collector finds it: it calls a finalizer of the pass
    before ``__del__`` of a graph that returns the pass to its layer.
    """

    def __init__(self, layer: Layer) -> None:
        self.handle: int = library().nm_norm_pass_create(layer.handle)
        layer.pass_handles.append(self.handle)

    def forward(self, training: bool, rows: int, x: int, y: int) -> None:
        err, lib = ErrorText(), library()
        function = lib.nm_norm_pass_forward if training else lib.nm_norm_pass_infer
        check(function(self.handle, rows, x, y, byref(err)), err)

    def backward(self, x: int, dy: int, penalty_grad: float, dx: int) -> None:
        err = ErrorText()
        check(library().nm_norm_pass_backward(self.handle, x, dy, penalty_grad, dx, byref(err)), err)

    @property
    def penalty(self) -> float:
        return float(library().nm_norm_pass_penalty(self.handle))
