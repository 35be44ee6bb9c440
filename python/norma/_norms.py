"""Normalization layers over plain memory: the table of types, and layers of ``norma/norm.h``."""
from __future__ import annotations

import contextlib
import ctypes
import difflib
import re
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._handle import finalize
from ._library import Backend, UsageError, backend, check, encoded, integer, library
from ._records import ErrorText, NormPlan, NormSite, NormTypeStruct

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
    kind: type = str  #: of the value: bool, int, float or str


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
    #: values of the option ``preset``, each with the options that it sets
    presets: Dict[str, Dict[str, str]] = {}


_KINDS = bool, int, float, str, str  # enum nm_option_kind


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _read_options(rows: Any) -> Dict[str, NormOption]:
    options = {}
    i = 0
    while rows and rows[i].name:
        row = rows[i]
        options[_text(row.name)] = NormOption(_text(row.initial), _text(row.choices) or None, row.min,
                                              row.max,
                                              _text(row.help), _KINDS[row.kind])
        i += 1
    return options


def _settings_of(text: str) -> Dict[str, str]:
    return {name: value for name, value in (word.split("=", 1) for word in text.split())}


def _read_presets(rows: Any) -> Dict[str, Dict[str, str]]:
    presets = {}
    i = 0
    while rows and rows[i].name:
        presets[_text(rows[i].name)] = _settings_of(_text(rows[i].settings))
        i += 1
    return presets


_types: Dict[str, NormType] = {}


def norm_types() -> Mapping[str, NormType]:
    """The types of norms by name: ``norma.norm_types()["power"].formula``."""
    if not _types:
        table = ctypes.cast(ctypes.addressof(c_void_p.in_dll(library().loaded, "nm_norm_types")),
                            POINTER(POINTER(NormTypeStruct)))
        i = 0
        while table[i]:
            head = table[i].contents
            _types[_text(head.name)] = NormType(
                _text(head.name),
                _text(head.title),
                _text(head.formula),
                _text(head.source),
                bool(head.traits & _USES_BATCH),
                bool(head.traits & _HAS_STATE),
                bool(head.traits & _APPROX_GRAD),
                bool(head.traits & _HAS_PENALTY),
                _read_options(head.options),
                _read_presets(head.presets),
            )
            i += 1
    return _types


# ---- names that people type ----

_OTHER_NAMES = {"bn": "batch", "ln": "layer", "batchnorm1d": "batch", "batchrenorm": "renorm",
                "dynamictanh": "dyt", "identity": "none", "gn": "group", "pn": "power"}
_OTHER_OPTIONS = {"lambda_": "lambda", "num_groups": "groups", "heads": "groups", "num_heads": "groups",
                  "n_heads": "groups", "eps": "epsilon", "warmup_iters": "warmup",
                  "alpha_fwd": "decay_forward", "alpha_bkw": "decay_backward", "buffer_size": "window"}
_HINTS = {"momentum": "use decay = 1 - momentum",
          **dict.fromkeys(("affine", "elementwise_affine", "bias"),
                          "weight and bias are always learned; freeze them with requires_grad_(False)")}


def _bare(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def find_type(name: Any) -> Optional[NormType]:
    """The type of that name, title or abbreviation, without regard to case, spaces and hyphens, or of a class
    with such a name; None: there is none."""
    types = norm_types()
    name = name.__name__ if isinstance(name, type) else name
    if not isinstance(name, str):
        return None
    if name in types:
        return types[name]
    bare = _bare(name)
    known = {**_OTHER_NAMES, **{_bare(title): key for key, one in types.items()
                                for title in (key, one.title)}}
    return types.get(known.get(bare) or known.get(re.sub("norm(alization)?$", "", bare), ""))


def _similar(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, 1, 0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def norm_type(name: str) -> NormType:
    """The type of that name, or of its title ("PowerNorm"). UsageError: there is none."""
    found = find_type(name)
    if found is None:
        types = norm_types()
        raise UsageError(
            f"unknown norm {name!r}{_similar(str(name), list(types))}; available: {', '.join(types)}"
        )
    return found


def _option_names(found: NormType, options: Mapping[str, Any], groups: int) -> Tuple[Dict[str, Any], int]:
    """Options and the groups with names of other programs translated. UsageError: an unknown name."""
    known, translated = [*found.options, "groups"], {}
    for name, value in options.items():
        key = name if name in found.options else _OTHER_OPTIONS.get(name, name)
        if key == "groups" and key not in found.options:
            groups = value
        elif key not in found.options:
            hint = f"; {_HINTS[name]}" if name in _HINTS else _similar(name, known)
            raise UsageError(f"norm '{found.name}' has no option {name!r}{hint}; options: {', '.join(known)}")
        elif key in translated:
            raise UsageError(f"norm '{found.name}': {name!r} and another option both mean {key!r}")
        else:
            translated[key] = value
    return translated, groups


def _setting(value: Any) -> str:
    text = (
        ("true" if value else "false")
        if isinstance(value, bool)
        else repr(float(value)) if isinstance(value, float) else str(value)
    )
    if not text or len(text.split()) != 1 or text.split()[0] != text or "\0" in text:
        raise UsageError(f"{value!r}: expected one word")
    return text


def _value(kind: type, text: str) -> Any:
    return text.lower() in ("true", "1", "yes",
                            "on") if kind is bool else int(text) if kind is int else kind(text)


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
        settings, groups = _option_names(found, options, groups)
        width, groups = integer("width", width, 1, 2**31 - 1), integer("groups", groups, 1, 2**31 - 1)
        if "groups" in found.options and groups != 1:
            settings["groups"] = groups
        text = " ".join(f"{key}={_setting(value)}" for key, value in settings.items())
        return LayerSpec(found, width, groups, text, _WARMUP.get(found.name, 0))

    def values(self) -> Dict[str, Any]:
        """All options of the type with the values of this layer. Those of ``settings`` have been checked by a
        layer."""
        given = _settings_of(self.settings)
        preset = self.type.presets.get(given.get("preset",
                                                 getattr(self.type.options.get("preset"), "default", "")), {})
        texts = {**{name: option.default for name, option in self.type.options.items()}, **preset, **given}
        texts = {name: str(self.warmup_updates) if name == "warmup" and text == "lr" else text for name,
                 text in texts.items()}
        return {name: _value(self.type.options[name].kind, text) for name, text in texts.items()}


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
        self.spec, self.double, self.threads = spec, double, threads
        self.element = 8 if double else 4
        self.backend: Backend = backend(double, threads)
        self.passes: List[Pass] = []  # that no caller uses
        self.pass_handles: List[int] = []  # of all passes
        site = NormSite(name=encoded("name", name or spec.type.name), width=spec.width, groups=spec.groups,
                        plan=NormPlan(warmup_updates=spec.warmup_updates))
        with self.backend.lock:
            check(lib.nm_norm_create(byref(handle), self.backend.handle, spec.type.name.encode(),
                                     spec.settings.encode(), byref(site), byref(err)), err)
        self.handle: int = handle.value or 0
        finalize(self, _free, lib, self.handle, self.pass_handles, self.backend)
        self.params = {n: self._vector(n, lib.nm_norm_param, lib.nm_norm_param_grad)
                       for n in self._names(lib.nm_norm_param_name)}
        self.state = {n: self._vector(n, lib.nm_norm_state, None)
                      for n in self._names(lib.nm_norm_state_name)}
        self.of_gradients = tuple(i for i, n in enumerate(self.state)
                                  # changed by the backward pass
                                  if lib.nm_norm_state_of_gradients(self.handle, n.encode()))
        self.counters = {n: int(ctypes.cast(lib.nm_norm_counter(self.handle, n.encode()), c_void_p).value
                                or 0)
                         for n in self._names(lib.nm_norm_counter_name)}

    def _names(self, function: Any) -> List[str]:
        names: List[str] = []
        while function(self.handle, len(names)):
            names.append(_text(function(self.handle, len(names))))
        return names

    def _vector(self, name: str, find: Any, find_grad: Any) -> Vector:
        length = c_int32()
        address = find(self.handle, name.encode(), byref(length))
        return Vector(address, length.value, find_grad(self.handle, name.encode(), None) if find_grad
                      else None)

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
        """A pass for the caller alone, until release_pass. Without a lock: the garbage collector may call
        release_pass meanwhile, in the same thread."""
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

    Its memory is freed with that of the layer, and not when the garbage collector finds it: it calls a
    finalizer of the pass before ``__del__`` of a graph that returns the pass to its layer.
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
