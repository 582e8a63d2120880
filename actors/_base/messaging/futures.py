"""Futures: results that one thread completes and an actor's coroutine or another thread awaits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Awaitable(Protocol[T_co]):
    """The protocol that coroutines can await: `Future`, `Task` and `actors._cri.call.Call` have it.

    `__await__` yields the object itself once and then returns `result(0)`.
    """

    def add_done_callback(self, callback: Callable[[Any], None], /) -> None: ...

    def result(self, timeout: float | None = None) -> T_co: ...

    def cancel(self) -> object: ...

    def __await__(self) -> Generator[Any, None, T_co]: ...


class Future(Generic[T]):
    """A one-time result. The first completion counts, further ones are ignored.

    Callbacks run in the completing thread, or at once if it is complete. They must not block. The first exception of a
    callback is raised there once all have run.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_followed", "_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._followed = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []

    def set(self, value: T) -> None:
        """Complete with a value."""
        self._complete(value, None)

    def set_error(self, error: BaseException) -> None:
        """Complete with an exception, raised where the result is taken."""
        self._complete(None, error)

    def _complete(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._done:
                return
            self._done, self._value, self._error = True, value, error
            callbacks, self._callbacks = self._callbacks, []
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback(self)
            except Exception as wrong:  # the others wait for their call, too
                failure = failure or wrong
        if failure is not None:
            raise failure

    def add_done_callback(self, callback: Callable[[Future[T]], None], /) -> None:
        """Call `callback(self)` on completion, in the completing thread."""
        with self._lock:
            self._followed = True
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def on_end(self, callback: Callable[[Future[T]], None], /) -> None:
        """The same for bookkeeping: it does not count as following."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    @property
    def followed(self) -> bool:
        """True once a callback was added or the result was read."""
        return self._followed

    def done(self) -> bool:
        """True when it is complete."""
        return self._done

    def cancel(self) -> None:
        """Do nothing. Subclasses stop the work whose result is not needed any more."""

    def result(self, timeout: float | None = None) -> T:
        """Wait for the value, at most `timeout` seconds (None: for ever). Not for an actor's thread.

        Raises the stored error, or TimeoutError.
        """
        self._followed = True
        if not self._done:
            arrived = threading.Event()
            self.add_done_callback(lambda _: arrived.set())
            if not arrived.wait(timeout):
                raise TimeoutError(f"no result within {timeout} s")
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def __await__(self) -> Generator[Future[T], None, T]:
        yield self
        return self.result(0)
