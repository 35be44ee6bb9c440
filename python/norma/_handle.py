"""Objects of the library as Python objects: ``with`` frees them at its end."""
from __future__ import annotations

import weakref
from ctypes import c_void_p
from typing import Any, Optional, TypeVar

from ._library import UsageError

_Self = TypeVar("_Self", bound="Closeable")


def finalize(owner: Any, function: Any, *arguments: Any) -> None:
    """Calls a function when nothing refers to the owner any more, but not when the interpreter exits: then
    daemon threads may still be in a call that uses the memory."""
    weakref.finalize(owner, function, *arguments).atexit = False


def close(handle: c_void_p, function: Any) -> None:
    """Frees an object of the library. A signal handler that runs meanwhile or later finds the handle
    empty."""
    address, handle.value = handle.value, None
    function(address)


class Handle:
    """An object of the library, an argument of its functions. It is freed when nothing refers to it any more;
    a call refers to its arguments until it returns."""

    def __init__(self, address: int, free: Any) -> None:
        self._as_parameter_ = address  # what ctypes passes
        finalize(self, free, address)


class Closeable:
    """Base class of objects that own memory of the library: a context manager with ``close``."""

    _owned: Optional[Any] = None  # None: closed

    @property
    def _handle(self) -> Any:
        owned = self._owned
        if owned is None:
            raise UsageError(f"this {type(self).__name__} is closed")
        return owned

    def close(self) -> None:
        """Frees the memory: at once, or when the calls of other threads have returned. Later calls raise
        UsageError; a second ``close`` does nothing. Results that were returned remain. Without ``close`` the
        memory is freed with the object."""
        self._owned = None

    _instead_of_pickle = "create it again"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled; {self._instead_of_pickle}")

    def __enter__(self: _Self) -> _Self:
        self._handle  # UsageError if it is closed
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
