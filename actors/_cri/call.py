"""A future for one CRI call: threads can wait for it, coroutines can await it, and it calls back.

A call holds no thread. Callbacks run on gRPC's thread, which all calls of a channel share. So a callback only puts a
message into a mailbox, and returns.
"""

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError

from actors._base.messaging.futures import Future
from actors._cri.errors import CriError, NotFound

T = TypeVar("T")

_GO_NAMES = {"OK": "OK", "CANCELLED": "Canceled"}
"""gRPC codes whose Go name is not the code in camel case."""
_WORD = re.compile(r"_?([A-Z])([A-Z]*)")


class Call(Future[T], Generic[T]):
    """A CRI call. `result` raises every failure of the call as a CriError; the start of a call raises nothing.

    An exception of `read`, which is a fault of ours, is raised by `result` as it is. After `cancel` the call ends with
    code Canceled, once gRPC's thread has heard of it. The runtime may still complete it.
    """

    __slots__ = ("_absent", "_read", "_seen", "_under_way", "rpc")

    def __init__(
        self,
        rpc: str,
        start: Callable[[], Any],
        read: Callable[[Any], T],
        absent: Callable[[], T] | None = None,
        seen: Callable[[Any, CriError | None], None] | None = None,
    ) -> None:
        """Start the call `rpc` by `start()`, a gRPC `.future()`; `read` makes the result of its response.

        With `absent`, the result after NotFound is `absent()`. `seen` gets the response, or None and the error, before
        any callback.
        """
        super().__init__()
        self.rpc = rpc
        self._read, self._absent, self._seen = read, absent, seen
        self._under_way: Any = None
        try:
            self._under_way = start()
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed by another thread
            self._end(None, None, wrapped(error, rpc))
        else:
            self._under_way.add_done_callback(self._over)

    def _over(self, call: Any) -> None:
        response = None
        value: Any = None
        error: Exception | None = None
        try:
            response = call.result(0)
            value = self._read(response)
        except CriError as failure:
            error = failure
        except (grpc.RpcError, grpc.FutureCancelledError) as failure:
            error = wrapped(failure, self.rpc)
            error.__cause__ = failure
        except DecodeError as failure:  # of a runtime that sends something else
            error = CriError.of("Internal", f"cannot read the runtime's answer: {failure}", self.rpc)
        except Exception as failure:
            error = failure
        self._under_way = None  # it has the answer's bytes
        self._end(response, value, error)

    def _end(self, response: Any, value: Any, error: Exception | None) -> None:
        if self._seen is not None and (error is None or isinstance(error, CriError)):
            self._seen(response, error)
        if isinstance(error, NotFound) and self._absent is not None:
            self.set(self._absent())
        elif error is not None:
            self.set_error(error)
        else:
            self.set(value)

    @property
    def failed(self) -> bool:
        """True when it is over and has failed."""
        return self._error is not None

    def result(self, timeout: float | None = None) -> T:
        try:
            return super().result(timeout)
        except TimeoutError:
            raise TimeoutError(f"{self.rpc} is still under way after {timeout} s") from None

    def cancel(self) -> None:
        if (call := self._under_way) is not None:
            call.cancel()


def beside(call: Call[T]) -> Future[T]:
    """A future with the call's result, which can be cancelled without cancelling the call.

    For ExecSync: after a cancelled one, containerd 1.6 may let the container's next exec hang for half a minute.
    """
    answered: Future[T] = Future()

    def hand_on(ended: Future[T]) -> None:
        try:
            value = ended.result(0)
        except Exception as error:  # also one of `read`: gRPC only logs what a callback raises
            answered.set_error(error)
        else:
            answered.set(value)

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
    return _GO_NAMES.get(code) or _WORD.sub(lambda part: part[1] + part[2].lower(), code)
