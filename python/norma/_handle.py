"""Objects of the library as Python objects: ``with`` frees them at its end."""
from __future__ import annotations

import weakref
from typing import Any, Optional, TypeVar

from ._library import UsageError

_Self = TypeVar("_Self", bound="Closeable")


class Handle:
    """An object of the library, an argument of its functions. It is freed when nothing refers to it any more; a call refers to
    its arguments until it returns."""

    def __init__(self, address: int, free: Any) -> None:
        self._as_parameter_ = address  # what ctypes passes
        weakref.finalize(self, free, address)


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
        """Frees the memory: at once, or when the calls of other threads have returned. Later calls raise UsageError; a second
        ``close`` does nothing. Results that were returned remain. Without ``close`` the memory is freed with the object."""
        self._owned = None

    def __enter__(self: _Self) -> _Self:
        self._handle  # UsageError if it is closed
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
