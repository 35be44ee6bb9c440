"""The shared library: where it is, its OpenMP runtime, its functions, its errors.

The bundled library names no OpenMP runtime. Its GOMP functions are those of the runtime that the process has
already loaded, such as PyTorch's. Otherwise they are those of PyTorch's copy if PyTorch is installed, so that
a later ``import torch`` uses the same one, or of the system. A process therefore has one pool of threads.
"""
from __future__ import annotations

import ctypes
import errno
import glob
import importlib.util
import operator
import os
import re
import sys
import threading
import warnings
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._records import (BackendOptions, ErrorText, IntervalStruct, NormSite, PairedStruct, PerplexitySums,
                       PrepareEvents, PreparedDropStruct, PreparedSideStruct, PreparedSplitStruct, SpanStruct,
                       TrainingEvents, WordStruct, ComparisonEvents)

__all__ = ["Error", "UsageError", "FileError", "FormatError", "MismatchError", "OutOfMemoryError",
           "UnsupportedError", "DivergedError", "DeviceError", "library", "check"]


# ---- errors ----

class Error(Exception):
    """Base class. ``status`` is the status of ``norma/status.h``, which is also the program's exit code."""

    status = 0


class UsageError(Error, ValueError):
    """A wrong option, value or shape."""
    status = 2


class FileError(Error, OSError):
    """Reading or writing failed. ``errno`` and ``filename`` are set if the message is that of a system call;
    a missing file is also a FileNotFoundError."""
    status = 3

    def __init__(self, text: str) -> None:
        super().__init__(text)
        explained = re.match("(.+?): No such file[:,] ", text)
        path, reason = (explained[1], os.strerror(errno.ENOENT)) if explained else text.rpartition(": ")[::2]
        self.errno = _ERROR_NUMBERS.get(reason)
        if self.errno is not None and ": " not in path and not path.startswith("cannot "):
            self.filename = path

    def __str__(self) -> str:
        return str(self.args[0])  # that of OSError would be made of errno and filename


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist."""


_ERROR_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


def file_error(text: str) -> FileError:
    """The exception of a message about a file."""
    error = FileError(text)
    return MissingFileError(text) if error.errno == errno.ENOENT else error


class FormatError(Error, ValueError):
    """Malformed input; the message has the file and the line."""
    status = 4


class MismatchError(Error, ValueError):
    """Files or settings that do not match."""
    status = 5


class OutOfMemoryError(Error, MemoryError):
    """Out of memory."""
    status = 6


class UnsupportedError(Error, NotImplementedError):
    """Not supported on this machine or by this model."""
    status = 7


class DivergedError(Error, ArithmeticError):
    """The loss, a gradient or a probability is not finite."""
    status = 8


class DeviceError(Error, RuntimeError):
    """The GPU or its driver failed."""
    status = 10


for _kind in (Error, UsageError, FileError, MissingFileError, FormatError, MismatchError, OutOfMemoryError,
              UnsupportedError, DivergedError, DeviceError):
    _kind.__module__ = __name__.rpartition(".")[0]  # in tracebacks and pickles: norma.UsageError

_ERRORS = {kind.status: kind for kind in (UsageError, FileError, FormatError, MismatchError, OutOfMemoryError,
                                          UnsupportedError, DivergedError, DeviceError)}


def error_of(status: int, text: str) -> BaseException:
    """The exception of a status, with the message of the library."""
    if status == 9:
        return KeyboardInterrupt(text)
    error = file_error(text) if status == FileError.status else _ERRORS.get(status, Error)(text)
    error.status = status
    return error


def check(status: int, err: ErrorText) -> None:
    """Raises the exception of a status other than NM_OK."""
    if status:
        raise error_of(status, err.text.decode("utf-8", "replace"))


def warn(text: str) -> None:
    """A warning at the line that called the package."""
    package, level, frame = __name__.rpartition(".")[0], 1, sys._getframe()
    while frame.f_back and str(frame.f_globals.get("__name__")).split(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


# ---- arguments of functions ----

def encoded(what: str, text: Any) -> bytes:
    """A text or a path for C. what: name of the argument, for messages."""
    try:
        found = (
            os.fsencode(text) if isinstance(text, os.PathLike) else text.encode("utf-8", "surrogateescape")
        )
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(f"{what} = {text!r}: expected a text" if not isinstance(text, str) else
                         f"{what}: not Unicode text") from None
    if b"\0" in found:
        raise UsageError(f"{what}: the character NUL at position {found.index(0) + 1}")
    return bytes(found)


def encoded_path(what: str, path: Any) -> bytes:
    """A path for C."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise UsageError(f"{what} = {path!r}: expected a path")
    text = os.fsdecode(path)
    if not text:
        raise UsageError(f"{what}: empty")
    return encoded(what, text)


MAX_THREADS = 4096  # of the option device.threads


def integer(what: str, value: Any, low: int, high: int) -> int:
    """An integer within limits; ctypes would cut others off."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise UsageError(f"{what} = {value!r}: expected an integer from {low} to {high}")
    return number


call_proceed = CFUNCTYPE(c_bool, c_void_p)


# ---- OpenMP ----

_RUNTIMES = ("libgomp", "libomp", "libiomp5")


def loaded_openmp() -> List[str]:
    """Paths of the OpenMP runtimes that this process has loaded, PyTorch's first.

    Runtimes of GCC, LLVM and Intel; the latter two also have the functions of the first. Empty on systems
    without ``/proc``.
    """
    paths = []
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                name = os.path.basename(path)
                if name.startswith(_RUNTIMES) and ".so" in name and "/" + path not in paths:
                    paths.append("/" + path)
    except OSError:
        pass
    return sorted(paths, key=lambda path: "/torch/" not in path)


def _openmp_candidates() -> Iterator[str]:
    yield from loaded_openmp()
    torch = importlib.util.find_spec("torch")
    for folder in (torch.submodule_search_locations or []) if torch else []:
        yield from sorted(glob.glob(os.path.join(folder, "lib", "libgomp*.so*")))
    yield "libgomp.so.1"


def _load_openmp() -> str:
    problems = []
    for path in _openmp_candidates():
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return path
        except OSError as problem:
            problems.append(str(problem))
    raise ImportError("norma: no OpenMP runtime (on Debian and Ubuntu: apt-get install libgomp1): " +
                      "; ".join(problems))


# ---- library ----

_here = os.path.dirname(os.path.abspath(__file__))
_text, _pointer, _status, _error = c_char_p, c_void_p, c_int, POINTER(ErrorText)

# name: result, arguments
_FUNCTIONS: Dict[str, Tuple[Any, ...]] = {
    "nm_backend_create": (_status, POINTER(_pointer), POINTER(BackendOptions), _error),
    "nm_backend_free": (None, _pointer),
    "nm_norm_create": (_status, POINTER(_pointer), _pointer, _text, _text, POINTER(NormSite), _error),
    "nm_norm_free": (None, _pointer),
    "nm_norm_infer": (_status, _pointer, c_int32, _pointer, _pointer, _error),
    "nm_norm_pass_create": (_pointer, _pointer),
    "nm_norm_pass_free": (None, _pointer),
    "nm_norm_pass_forward": (_status, _pointer, c_int32, _pointer, _pointer, _error),
    "nm_norm_pass_infer": (_status, _pointer, c_int32, _pointer, _pointer, _error),
    "nm_norm_pass_backward": (_status, _pointer, _pointer, _pointer, c_double, _pointer, _error),
    "nm_norm_pass_penalty": (c_double, _pointer),
    "nm_norm_zero_grads": (None, _pointer),
    "nm_norm_param_name": (_text, _pointer, c_int32),
    "nm_norm_state_name": (_text, _pointer, c_int32),
    "nm_norm_counter_name": (_text, _pointer, c_int32),
    "nm_norm_param": (_pointer, _pointer, _text, POINTER(c_int32)),
    "nm_norm_param_grad": (_pointer, _pointer, _text, POINTER(c_int32)),
    "nm_norm_state": (_pointer, _pointer, _text, POINTER(c_int32)),
    "nm_norm_state_of_gradients": (c_bool, _pointer, _text),
    "nm_norm_counter": (POINTER(c_int64), _pointer, _text),
    "nm_norm_save": (_status, _pointer, _text, _error),
    "nm_norm_load": (_status, _pointer, _text, _error),
    "nm_version": (_text,),
    "nm_translator_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_translator_close": (None, _pointer),
    "nm_translator_option": (_text, _pointer, _text),
    "nm_translator_warning": (_text, _pointer),
    "nm_translator_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_translator_max_tokens": (c_int32, _pointer),
    "nm_translator_nbest": (c_int32, _pointer),
    "nm_translator_run": (_status, _pointer, POINTER(_text), c_size_t, POINTER(_pointer), _error),
    "nm_translator_run_prefixes": (_status, _pointer, POINTER(_text), POINTER(_text), c_size_t,
                                   POINTER(_pointer),
                                   _error),
    "nm_translator_run_constraints": (_status, _pointer, POINTER(_text), POINTER(_text), POINTER(_text),
                                      c_size_t,
                                      POINTER(_pointer), _error),
    "nm_translator_score": (_status, _pointer, POINTER(_text), POINTER(_text), c_size_t, POINTER(_pointer),
                            _error),
    "nm_translations_free": (None, _pointer),
    "nm_translations_count": (c_size_t, _pointer, c_size_t),
    "nm_translations_too_long": (c_bool, _pointer, c_size_t),
    "nm_translations_text": (_text, _pointer, c_size_t, c_size_t),
    "nm_translations_score": (c_double, _pointer, c_size_t, c_size_t),
    "nm_translations_n_tokens": (c_size_t, _pointer, c_size_t, c_size_t),
    "nm_translations_token": (_text, _pointer, c_size_t, c_size_t, c_size_t),
    "nm_translations_token_scores": (POINTER(c_double), _pointer, c_size_t, c_size_t),
    "nm_translations_n_words": (c_size_t, _pointer, c_size_t, c_size_t),
    "nm_translations_words": (POINTER(WordStruct), _pointer, c_size_t, c_size_t),
    "nm_language_model_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_language_model_close": (None, _pointer),
    "nm_language_model_option": (_text, _pointer, _text),
    "nm_language_model_warning": (_text, _pointer),
    "nm_language_model_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_language_model_score": (_status, _pointer, POINTER(_text), c_size_t, c_int, POINTER(_pointer),
                                _error),
    "nm_language_model_generate": (_status, _pointer, POINTER(_text), c_size_t, c_uint64, POINTER(_pointer),
                                   _error),
    "nm_lm_scores_free": (None, _pointer),
    "nm_lm_scores_n_tokens": (c_size_t, _pointer, c_size_t),
    "nm_lm_scores_token": (_text, _pointer, c_size_t, c_size_t),
    "nm_lm_scores_tokens": (POINTER(c_double), _pointer, c_size_t),
    "nm_lm_scores_line": (c_double, _pointer, c_size_t),
    "nm_lm_scores_perplexity": (c_double, _pointer),
    "nm_language_model_perplexity": (_status, _pointer, _text, POINTER(_pointer), _error),
    "nm_perplexity_get_sums": (PerplexitySums, _pointer),
    "nm_perplexity_interval": (IntervalStruct, _pointer),
    "nm_perplexity_free": (None, _pointer),
    "nm_lm_texts_free": (None, _pointer),
    "nm_lm_texts_get": (_text, _pointer, c_size_t),
    "nm_tagger_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_tagger_close": (None, _pointer),
    "nm_tagger_option": (_text, _pointer, _text),
    "nm_tagger_warning": (_text, _pointer),
    "nm_tagger_file_scheme": (_text, _pointer),
    "nm_tagger_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_tagger_n_tags": (c_size_t, _pointer),
    "nm_tagger_tag": (_text, _pointer, c_size_t),
    "nm_tagger_run": (_status, _pointer, POINTER(_text), POINTER(c_size_t), c_size_t, POINTER(_pointer),
                      _error),
    "nm_tagged_free": (None, _pointer),
    "nm_tagged_length": (c_size_t, _pointer, c_size_t),
    "nm_tagged_tag": (_text, _pointer, c_size_t, c_size_t),
    "nm_tagged_n_spans": (c_size_t, _pointer, c_size_t),
    "nm_tagged_get_span": (c_bool, _pointer, c_size_t, c_size_t, POINTER(SpanStruct)),
    "nm_tagged_in_pieces": (c_bool, _pointer, c_size_t),
    "nm_classifier_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_classifier_close": (None, _pointer),
    "nm_classifier_option": (_text, _pointer, _text),
    "nm_classifier_warning": (_text, _pointer),
    "nm_classifier_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_classifier_n_classes": (c_size_t, _pointer),
    "nm_classifier_class": (_text, _pointer, c_size_t),
    "nm_classifier_run": (_status, _pointer, POINTER(_text), c_size_t, POINTER(_pointer), _error),
    "nm_image_classifier_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_image_classifier_close": (None, _pointer),
    "nm_image_classifier_option": (_text, _pointer, _text),
    "nm_image_classifier_warning": (_text, _pointer),
    "nm_image_classifier_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_image_classifier_n_classes": (c_size_t, _pointer),
    "nm_image_classifier_class": (_text, _pointer, c_size_t),
    "nm_image_classifier_run": (_status, _pointer, POINTER(_text), c_size_t, POINTER(_pointer), _error),
    "nm_classifications_free": (None, _pointer),
    "nm_classifications_label": (_text, _pointer, c_size_t),
    "nm_classifications_probabilities": (POINTER(c_double), _pointer, c_size_t),
    "nm_classifications_truncated": (c_bool, _pointer, c_size_t),
    "nm_scorer_open": (_status, POINTER(_pointer), _text, POINTER(_text), _error),
    "nm_scorer_close": (None, _pointer),
    "nm_scorer_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_scorer_run": (_status, _pointer, POINTER(_text), c_size_t, POINTER(_text), c_size_t,
                      POINTER(_pointer), _error),
    "nm_scorer_run_files": (_status, _pointer, _text, POINTER(_text), c_size_t, POINTER(_pointer), _error),
    "nm_scores_free": (None, _pointer),
    "nm_scores_set_proceed": (None, _pointer, call_proceed, _pointer),
    "nm_scores_n": (c_size_t, _pointer),
    "nm_scores_value": (c_double, _pointer),
    "nm_scores_segment": (c_double, _pointer, c_size_t),
    "nm_scores_line": (_text, _pointer),
    "nm_scores_signature": (_text, _pointer),
    "nm_scores_interval": (c_bool, _pointer, POINTER(IntervalStruct)),
    "nm_scores_compare": (_status, _pointer, _pointer, POINTER(PairedStruct), _error),
    "nm_prepare_folder": (_status, POINTER(_pointer), _text, POINTER(_text), POINTER(PrepareEvents), _error),
    "nm_prepared_free": (None, _pointer),
    "nm_prepared_folder": (_text, _pointer),
    "nm_prepared_n_sides": (c_int32, _pointer),
    "nm_prepared_merges": (c_int64, _pointer),
    "nm_prepared_get_side": (c_bool, _pointer, c_int32, POINTER(PreparedSideStruct)),
    "nm_prepared_get_split": (c_bool, _pointer, c_int32, POINTER(PreparedSplitStruct)),
    "nm_prepared_get_drop": (c_bool, _pointer, c_int32, c_size_t, POINTER(PreparedDropStruct)),
    "nm_training_open": (_status, POINTER(_pointer), _text, _text, POINTER(_text), c_int,
                         POINTER(TrainingEvents), _error),
    "nm_training_run": (_status, _pointer, _error),
    "nm_training_warning": (_text, _pointer),
    "nm_training_stop": (None, _pointer),
    "nm_training_close": (None, _pointer),
    "nm_comparison_open": (_status, POINTER(_pointer), _text, _text, POINTER(_text),
                           POINTER(ComparisonEvents), _error),
    "nm_comparison_open_results": (_status, POINTER(_pointer), _text, POINTER(_text),
                                   POINTER(ComparisonEvents), _error),
    "nm_comparison_run": (_status, _pointer, _error),
    "nm_comparison_stop": (None, _pointer),
    "nm_comparison_close": (None, _pointer),
    "nm_comparison_text": (_text, _pointer, _text),
    "nm_comparison_grid_text": (_text, _pointer, _text),
}


def package_path(*names: str) -> str:
    """Path of a file or folder of the package. In an editable installation, the package has two folders: that
    of the sources, and that of what was built."""
    paths = [os.path.join(folder, *names) for folder in (_here,
                                                         *sys.modules[__name__.rpartition(".")[0]].__path__)]
    return next(filter(os.path.exists, paths), paths[0])


def library_path() -> str:
    """The library of the package; the environment variable NORMA_LIBRARY replaces it."""
    return os.environ.get("NORMA_LIBRARY") or package_path("libnorma.so")


class Library:
    """The declared functions by name; ctypes would call others with arguments of the wrong size."""

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise ImportError(f"norma: {path} does not exist; install the package, or set NORMA_LIBRARY")
        _load_openmp()
        self.loaded = ctypes.CDLL(path)
        for name, (result, *arguments) in _FUNCTIONS.items():
            try:
                function = getattr(self.loaded, name)
            except AttributeError:
                raise ImportError(
                    f"norma: {path} is of another version, without {name}; install the package again"
                ) from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"libnorma: {name} is not declared")


_loaded: Optional[Library] = None
_loading = threading.RLock()


def library() -> Library:
    """The library, loaded at the first call. Its functions run without the interpreter lock."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = Library(library_path())
    return _loaded


# ---- backends ----

_backends: Dict[Tuple[str, int, int], "Backend"] = {}
_loading_backends = threading.RLock()


class Backend:
    """A backend of a number of threads; one for all layers. Its calls hold ``lock``: they share a
    workspace."""

    def __init__(self, name: str, dtype: int, threads: int) -> None:
        err = ErrorText()
        self.handle = c_void_p()
        self.lock = threading.RLock()
        options = BackendOptions(name.encode(), dtype, b"auto", False, threads, False)
        check(library().nm_backend_create(ctypes.byref(self.handle), ctypes.byref(options),
                                          ctypes.byref(err)), err)


def backend(double: bool, threads: int) -> Backend:
    """``cpu`` in float32, or the reference implementation ``ref`` in float64; threads 0: one per core."""
    key = ("ref", 1, 1) if double else ("cpu", 0, threads)
    with _loading_backends:
        if key not in _backends:
            _backends[key] = Backend(*key)
        return _backends[key]


# ---- fork ----

_held_at_fork: List[Any] = []


def _hold(lock: Any) -> None:
    lock.acquire()
    _held_at_fork.append(lock)


def _before_fork() -> None:
    """Waits for the calls of other threads. They do not exist in the child process, which would find their
    locks held and the workspace of a backend as it was in the middle of a call."""
    _hold(_loading_backends)
    for one in list(_backends.values()):
        _hold(one.lock)
    _hold(_loading)


def _after_fork() -> None:
    """The first lock last: another thread may be waiting to fork."""
    while _held_at_fork:
        _held_at_fork.pop().release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
