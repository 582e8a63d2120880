"""A future for one CRI call: threads can wait for it, coroutines can await it, and it calls back.

A call holds no thread. Callbacks run on gRPC's thread, which all calls of a channel share, so they must only put a
message into a mailbox and return.
"""

import re
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import grpc

from actors._base.messaging.futures import Future
from actors._cri.errors import CriError, NotFound

T = TypeVar("T")

_GO_NAMES = {"OK": "OK", "CANCELLED": "Canceled"}
"""gRPC codes whose Go name is not the code in camel case."""


class Call(Generic[T]):
    """A CRI call. `result` raises every failure as a CriError; the start of a call raises nothing."""

    __slots__ = ("_absent", "_convert", "_error", "_future", "rpc")

    def __init__(
        self, rpc: str, start: Callable[[], Any], convert: Callable[[Any], T], absent: Callable[[], T] | None = None
    ) -> None:
        """Start the call `rpc` by `start()`, a gRPC `.future()`; `convert` makes the result of its response.

        With `absent`, the result after NotFound is `absent()`.
        """
        self._absent = absent
        self.rpc = rpc
        self._convert = convert
        self._future: Any = None
        self._error: CriError | None = None
        try:
            self._future = start()
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed by another thread
            self._error = wrapped(error, rpc)

    def add_done_callback(self, fn: Callable[["Call[T]"], None]) -> None:
        """Call `fn(self)` when the call is over: in gRPC's thread, or at once in this one when it is over already."""
        if self._error is not None:
            fn(self)
        else:
            self._future.add_done_callback(lambda _: fn(self))

    def result(self, timeout: float | None = None) -> T:
        """Wait for the answer, at most `timeout` seconds; None waits until the call's own deadline.

        Raises the call's CriError, or TimeoutError after `timeout`.
        """
        if self._error is not None:
            raise self._error
        try:
            response = self._future.result(timeout)
        except grpc.FutureTimeoutError:
            raise TimeoutError(f"{self.rpc} is still under way after {timeout} s") from None
        except (grpc.RpcError, grpc.FutureCancelledError, CriError) as error:
            ours = error if isinstance(error, CriError) else wrapped(error, self.rpc)
            if self._absent is not None and isinstance(ours, NotFound):
                return self._absent()
            raise ours from error
        return self._convert(response)

    def done(self) -> bool:
        """True when there is an answer or an error."""
        return self._error is not None or bool(self._future.done())

    def failed(self) -> bool:
        """True when a call that is over has failed."""
        try:
            self.result(0)
        except (CriError, TimeoutError):
            return True
        return False

    def cancel(self) -> None:
        """End the call with a CriError of code Canceled. The runtime may still complete it."""
        if self._future is not None:
            self._future.cancel()

    def __await__(self) -> Generator["Call[T]", Any, T]:
        yield self
        return self.result(0)


def beside(call: Call[T]) -> Future[T]:
    """A future with the call's result, which can be cancelled without cancelling the call.

    For ExecSync: after a cancelled one, containerd 1.6 may let the container's next exec hang for half a minute.
    """
    answered: Future[T] = Future()

    def hand_on(ended: Call[T]) -> None:
        try:
            answered.set(ended.result(0))
        except CriError as error:
            answered.set_error(error)

    call.add_done_callback(hand_on)
    return answered


def wrapped(error: Exception, rpc: str) -> CriError:
    """The CriError for an exception that gRPC raised in `rpc`."""
    if isinstance(error, grpc.FutureCancelledError):
        return CriError.of("Canceled", "context canceled", rpc)
    if not isinstance(error, grpc.RpcError):
        return CriError.of("Unavailable", f"the client is closed: {error}", rpc)
    status: Any = error  # what a call raises is also a grpc.Call
    return CriError.of(go_name(status.code().name), status.details() or "", rpc)


def go_name(code: str) -> str:
    """A gRPC code's name as Go prints it: NOT_FOUND -> NotFound."""
    return _GO_NAMES.get(code) or re.sub(r"_?([A-Z])([A-Z]*)", lambda part: part[1] + part[2].lower(), code)
