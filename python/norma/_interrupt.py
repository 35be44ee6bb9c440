"""Calls of the library that run for long: Ctrl-C and exceptions in callbacks and signal handlers end them in
an orderly way."""
from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Dict, Iterator, Optional

from ._library import call_proceed

# The functions of the interpreter: those of `signal` convert numbers to enumerations, 0.4 ms for all signals.
_signal: Any = getattr(signal, "_signal", signal)
_NUMBERS = sorted(map(int, signal.valid_signals()))


class Interruptible:
    """Keeps the first exception of callbacks and signal handlers, which must not cross the library, until the
    library has finished: ``with Interruptible(stop) as calls: ...``, where callbacks call
    ``calls.call(function, ...)``.

    stop: called once, at the first exception; that of Ctrl-C is KeyboardInterrupt. Signals are handled in the
    main thread only, as always in Python, and between two callbacks of the library. A handler may run before
    the first statement of a callback, where ctypes would discard its exception; so every handler is replaced
    by one that keeps the exception.
    """

    def __init__(self, stop: Callable[[], Any]) -> None:
        self._stop = stop
        self.handles_signals = threading.current_thread() is threading.main_thread()
        self.problem: Optional[BaseException] = None
        self._replaced: Dict[int, Any] = {}  # signal: handler and its replacement

    def _end(self, problem: BaseException) -> None:
        if self.problem is None:
            self.problem = problem
            self._stop()

    def _keeping(self, handler: Callable[..., Any]) -> Callable[..., None]:
        def handle(*arguments: Any) -> None:
            try:
                handler(*arguments)
            except BaseException as problem:
                self._end(problem)
        return handle

    def __enter__(self) -> "Interruptible":
        if self.handles_signals:
            for number in _NUMBERS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._replaced[number] = handler, self._keeping(handler)
                    _signal.signal(number, self._replaced[number][1])
        return self

    def __exit__(self, *_: Any) -> None:
        for number, (handler, replacement) in self._replaced.items():
            if _signal.getsignal(number) is replacement:  # not if a callback has set another one
                _signal.signal(number, handler)

    def proceed(self, *_: Any) -> bool:
        """Callback of the library that only handles signals: whether a call continues."""
        return self.problem is None

    def call(self, function: Optional[Callable[..., Any]], *arguments: Any) -> None:
        """Calls a function of the user, unless an earlier call failed."""
        if function is None or self.problem is not None:
            return
        try:
            function(*arguments)
        except BaseException as problem:  # an exception of any kind would be lost in the library
            self._end(problem)


@contextlib.contextmanager
def interruptible(handle: Any, set_proceed: Any) -> Iterator[None]:
    """Context manager of a call of the library. In the main thread, an exception of a signal handler, such as
    that of Ctrl-C, ends the call and is then raised. set_proceed: nm_NAME_set_proceed; handle: its first
    argument."""
    with Interruptible(lambda: None) as calls:
        proceed = call_proceed(calls.proceed)  # referenced until the call has returned
        if calls.handles_signals:
            set_proceed(handle, proceed, None)
        try:
            yield
        finally:
            if calls.handles_signals:
                set_proceed(handle, call_proceed(), None)
    if calls.problem is not None:
        raise calls.problem
