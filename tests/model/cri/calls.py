"""A CRI client of the in-memory runtime, whose calls take time and fail on request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from actors._cri.call import Call
from actors._cri.client import REQUEST_SECONDS, CriCalls
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.model.clock import Clock, Timer
from tests.model.cri.runtime import Runtime

T = TypeVar("T")
Fault = Literal["", "fails", "fails_after", "lost", "hangs", "late", "down", "down_after", "slow", "early"]
"""The fault of a call; empty: none. `fails`, `fails_after`: an error, without or after its effect. `lost`: the answer
is lost, so the deadline ends the call. `hangs`: no effect, then the deadline. `late`: the effect comes long after the
deadline. `down`: the endpoint refuses. `down_after`: the connection breaks after the effect. `slow`: takes a second.
`early`: StopContainer's answer comes some milliseconds before the exit is recorded, as containerd's may."""
FAULTS: tuple[Fault, ...] = ("fails", "fails_after", "lost", "hangs", "late", "down", "down_after", "slow", "early")

QUICK_S, EARLY_S, STARTING_S, SLOW_S, LATE_S = 0.002, 0.1, 0.05, 1.0, 300.0
_LATENCY = {"RunPodSandbox": STARTING_S, "StartContainer": STARTING_S, "CreateContainer": 0.02, "StopPodSandbox": 0.03}


class Pending:
    """One call in progress, with the interface of gRPC's future."""

    def __init__(self, client: ModelCri, rpc: str, request: Any, fault: Fault) -> None:
        self.rpc = rpc
        self.request = request
        self.fault = fault
        self.over = False
        self.applied = False
        self._client = client
        self._clock, self._runtime = client.runtime.clock, client.runtime
        self._timers: list[Timer] = []
        self._value: Any = None
        self._error: CriError | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    # gRPC's interface

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def cancel(self) -> None:
        if not self.over:
            self._abandon()
            self.finish(None, self._failure("Canceled", "context canceled"))

    def result(self, timeout: float | None = None) -> bytes:  # noqa: ARG002 - gRPC's signature
        assert self.over
        if self._error is not None:
            raise self._error
        answer: bytes = self._value.SerializeToString()
        return answer

    # Progress

    def finish(self, value: Any, error: CriError | None) -> None:
        """Complete with a value or an error; only the first call counts."""
        if self.over:
            return
        self.over, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def begin(self, deadline_s: float) -> None:
        """Start the call with its fault."""
        self._later(deadline_s, self._expire)
        wait_s = SLOW_S if self.fault == "slow" else _LATENCY.get(self.rpc, QUICK_S)
        match self.fault:
            case "hangs":
                return
            case "late":
                self._runtime.surprise_at = self._clock.now + LATE_S
                self._clock.call_later(LATE_S, self._apply_quietly)
            case "down":
                self.finish(None, self._failure("Unavailable", "connection refused"))
            case "fails" | "fails_after":
                self._later(wait_s, lambda: self._answer(self._failure("Unknown", "it broke")))
            case "down_after":
                self._later(wait_s, lambda: self._answer(self._failure("Unavailable", "connection reset")))
            case _ if self.rpc == "StopContainer":
                self._later(wait_s, self._stop)
            case _:
                self._later(wait_s, self._answer)

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._clock.call_later(delay_s, callback))

    def _failure(self, code: str, details: str) -> CriError:
        return CriError.of(code, details, self.rpc)

    def _apply(self) -> Any:
        self.applied = True
        return getattr(self._runtime, self.rpc)(self.request)

    def _apply_quietly(self) -> None:
        with contextlib.suppress(CriError):
            self._apply()

    def _answer(self, error: CriError | None = None) -> None:
        value = None
        try:
            if error is None or self.fault.endswith("_after"):
                value = self._apply()
        except CriError as refused:
            error = error or refused
        if self.fault != "lost":
            self.finish(value, error)

    def _stop(self) -> None:
        container = self._runtime.containers.get(self.request.container_id)
        if container is None:
            self.finish(None, self._failure("NotFound", "not found"))
            return

        def stopped() -> None:
            if self.fault != "lost":
                self.finish(pb.StopContainerResponse(), None)

        if self.fault == "early" and container.running:
            container.stopped = True
            self._clock.call_later(EARLY_S, lambda: self._runtime.end(container, 0))
            self.finish(pb.StopContainerResponse(), None)
            return
        kill = self._runtime.stop(container, self.request.timeout, stopped)
        if kill is not None:
            self._timers.append(kill)

    def _expire(self) -> None:
        if not self.over:
            self._abandon()
            self.finish(None, self._failure("DeadlineExceeded", "context deadline exceeded"))

    def _abandon(self) -> None:
        """The caller has cancelled, or the deadline has passed."""
        if self.fault == "late" or self.applied:
            return
        for timer in self._timers:
            timer.cancel()
        match self._client.cancelled(self.rpc):
            case "done" if self.fault not in ("fails", "down", "hangs") and self.rpc != "StopContainer":
                self._clock.call_later(QUICK_S, self._apply_quietly)
            case "half" if self.rpc == "StartContainer":
                container = self._runtime.containers.get(self.request.container_id)
                if container is not None and container.state == pb.CONTAINER_CREATED:
                    self._runtime.fail_start(container, "failed to start containerd task: context canceled: unknown")


class SteppedCall(Call[T]):
    """A call whose result the model's clock brings."""

    __slots__ = ("clock",)

    clock: Clock

    def result(self, timeout: float | None = None) -> T:
        while not self.done():
            assert self.clock.step(), "the call waits for ever"
        return super().result(timeout)


class ModelCri(CriCalls):
    """The client of one process. `close` is that process's death: all calls are cancelled."""

    endpoint = "unix:///run/model.sock"

    def __init__(
        self,
        runtime: Runtime,
        faults: Callable[[str], Fault] = lambda _: "",
        cancelled: Callable[[str], Literal["done", "dropped", "half"]] = lambda _: "dropped",
    ) -> None:
        """`faults(rpc)`: the fault of the next call of that rpc. `cancelled(rpc)`: the effect of a cancelled call: done
        all the same, dropped, or for a start half done."""
        self.runtime = runtime
        self.cancelled = cancelled
        self._request_seconds = REQUEST_SECONDS
        self._faults = faults
        self._calls: dict[Pending, None] = {}  # ordered, so that chance decides the same with the same seed
        self._commands: list[Pending] = []

    def close(self) -> None:
        """The process has died: cancel all its calls."""
        for call in list(self._calls):
            call.cancel()

    def end_commands(self) -> None:
        """End all hanging commands that were executed in containers."""
        for call in self._commands:
            call.finish(pb.ExecSyncResponse(), None)

    def _made(
        self, rpc: str, request: bytes, deadline: float, read: Callable[[bytes], T], absent: Callable[[], T] | None
    ) -> Call[T]:
        call = SteppedCall(rpc, lambda: self._start(rpc, request, deadline), read, absent)
        call.clock = self.runtime.clock
        return call

    def _start(self, rpc: str, request: bytes, deadline: float) -> Pending:
        call = Pending(self, rpc, getattr(pb, f"{rpc}Request").FromString(request), self._faults(rpc))
        self._calls[call] = None
        call.add_done_callback(lambda over: self._calls.pop(over, None))
        if rpc == "ExecSync":
            self._end_with_container(call)
        call.begin(deadline)
        return call

    def _end_with_container(self, call: Pending) -> None:
        """End a command with its container, even if it hangs."""
        container = self.runtime.containers.get(call.request.container_id)
        if container is not None and container.running:
            died = CriError.of("Unknown", "failed to exec in container: the container is gone", "ExecSync")
            container.waiting.append(lambda: call.finish(None, died))
            self._commands.append(call)
