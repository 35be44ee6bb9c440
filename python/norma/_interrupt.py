"""Calls of the library that run for long: Ctrl-C and exceptions in callbacks end them in an orderly way."""
from __future__ import annotations

import signal
import threading
from typing import Any, Callable, Optional


class Interruptible:
    """Keeps the first exception of callbacks, which must not cross the library, and turns SIGINT into KeyboardInterrupt after
    the library has finished: ``with Interruptible(stop) as calls: ...; calls.guard(function)(...)``.

    stop: called once, at the first exception or SIGINT. SIGINT is handled in the main thread only, as always in Python, and
    between two callbacks of the library.
    """

    def __init__(self, stop: Callable[[], Any]) -> None:
        self._stop = stop
        self.problem: Optional[BaseException] = None
        self._inherited: Any = None

    def _end(self, problem: BaseException) -> None:
        if self.problem is None:
            self.problem = problem
            self._stop()

    def __enter__(self) -> "Interruptible":
        self._handles = (threading.current_thread() is threading.main_thread()
                         and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        if self._handles:
            signal.signal(signal.SIGINT, lambda *_: self._end(KeyboardInterrupt()))
        return self

    def __exit__(self, *_: Any) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def call(self, function: Optional[Callable[..., Any]], *arguments: Any) -> None:
        """Calls a function of the user, unless an earlier call failed."""
        if function is None or self.problem is not None:
            return
        try:
            function(*arguments)
        except BaseException as problem:  # an exception of any kind would be lost in the library
            self._end(problem)
