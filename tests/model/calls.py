"""A CRI client of the runtime in memory: calls take time, and go wrong as they are told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from google.protobuf.message import Message

from actors._cri.client import REQUEST_SECONDS, CriCalls
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.model.clock import Clock, Timer
from tests.model.runtime import Runtime

Fault = Literal["", "fails", "fails_after", "lost", "hangs", "late", "down", "down_after", "slow"]
"""How a call goes: well; an error without effect, or after its effect; its answer lost (the deadline comes); nothing
happens until the deadline; its effect comes long after the caller gave up; nobody answers, or the connection breaks
after the effect; it takes a second."""
FAULTS: tuple[Fault, ...] = ("fails", "fails_after", "lost", "hangs", "late", "down", "down_after", "slow")

QUICK_S, STARTING_S, SLOW_S, LATE_S = 0.002, 0.05, 1.0, 300.0
_LATENCY = {"RunPodSandbox": STARTING_S, "StartContainer": STARTING_S, "CreateContainer": 0.02, "StopPodSandbox": 0.03}


class Pending:
    """One call under way, in the shape of gRPC's future."""

    def __init__(self, clock: Clock, on_cancel: Callable[[], None]) -> None:
        self.over = False
        self._clock = clock
        self._on_cancel = on_cancel
        self._value: Any = None
        self._error: CriError | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def finish(self, value: Any, error: CriError | None) -> None:
        """The answer, or why there is none; only the first counts."""
        if self.over:
            return
        self.over, self._value, self._error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def done(self) -> bool:
        return self.over

    def cancel(self) -> None:
        if not self.over:
            self._on_cancel()
            self.finish(None, CriError.of("Canceled", "context canceled"))

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - gRPC's signature
        while not self.over:
            assert self._clock.step(), "the call waits for ever"
        if self._error is not None:
            raise self._error
        return self._value


class ModelCri(CriCalls):
    """The client of one process. `close` is that process's death: nothing is answered any more."""

    endpoint = "unix:///run/model.sock"

    def __init__(
        self,
        runtime: Runtime,
        faults: Callable[[str], Fault] = lambda _: "",
        cancelled: Callable[[str], Literal["done", "dropped", "half"]] = lambda _: "dropped",
    ) -> None:
        """`faults(rpc)`: how the next call of that rpc goes. `cancelled(rpc)`: what becomes of one whose caller went
        away: done all the same, dropped, or (a start) begun and given up."""
        self._request_seconds = REQUEST_SECONDS
        self._runtime, self._clock = runtime, runtime.clock
        self._faults, self._cancelled = faults, cancelled
        self._calls: set[Pending] = set()
        self._closed = False

    def close(self) -> None:
        """The process is gone, and its connection with it."""
        self._closed = True
        for call in list(self._calls):
            call.cancel()

    def _start(self, rpc: str, request: Message, deadline: float) -> Any:
        fault = self._faults(rpc)
        timers: list[Timer] = []
        state = {"applied": False}

        def apply() -> Any:
            state["applied"] = True
            return getattr(self._runtime, rpc)(request)

        def abandoned() -> None:
            self._calls.discard(call)
            if fault == "late" or state["applied"]:
                return
            for timer in timers:
                timer.cancel()
            match self._cancelled(rpc):
                case "done" if fault not in ("fails", "down", "hangs") and rpc != "StopContainer":
                    self._clock.call_later(QUICK_S, lambda: _quietly(apply))
                case "half" if rpc == "StartContainer":
                    self._give_up_start(request)

        call = Pending(self._clock, abandoned)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

        def answer(error: CriError | None = None) -> None:
            value = None
            try:
                if error is None or fault.endswith("_after"):
                    value = apply()
            except CriError as refused:
                error = error or refused
            if fault != "lost":
                call.finish(value, error)

        def expire() -> None:
            if not call.over:
                abandoned()
                call.finish(None, CriError.of("DeadlineExceeded", "context deadline exceeded", rpc))

        timers.append(self._clock.call_later(deadline, expire))
        wait_s = SLOW_S if fault == "slow" else _LATENCY.get(rpc, QUICK_S)
        match fault:
            case "hangs":
                pass
            case "late":
                self._clock.call_later(LATE_S, lambda: _quietly(apply))
            case "down":
                call.finish(None, CriError.of("Unavailable", "connection refused", rpc))
            case "fails":
                timers.append(self._clock.call_later(wait_s, lambda: answer(CriError.of("Unknown", "it broke", rpc))))
            case "fails_after":
                timers.append(self._clock.call_later(wait_s, lambda: answer(CriError.of("Unknown", "it broke", rpc))))
            case "down_after":
                broken = CriError.of("Unavailable", "connection reset", rpc)
                timers.append(self._clock.call_later(wait_s, lambda: answer(broken)))
            case _ if rpc == "StopContainer":
                timers.append(self._clock.call_later(wait_s, lambda: self._stop(request, call, fault, timers)))
            case _:
                timers.append(self._clock.call_later(wait_s, answer))
        return call

    def _stop(self, request: Any, call: Pending, fault: Fault, timers: list[Timer]) -> None:
        container = self._runtime.containers.get(request.container_id)
        if container is None:
            call.finish(None, CriError.of("NotFound", "not found", "StopContainer"))
            return

        def stopped() -> None:
            if fault != "lost":
                call.finish(pb.StopContainerResponse(), None)

        kill = self._runtime.stop(container, request.timeout, stopped)
        if kill is not None:
            timers.append(kill)

    def _give_up_start(self, request: Any) -> None:
        container = self._runtime.containers.get(request.container_id)
        if container is not None and container.state == pb.CONTAINER_CREATED:
            self._runtime.fail_start(container, "failed to start containerd task: context canceled: unknown")


def _quietly(apply: Callable[[], Any]) -> None:
    try:
        apply()
    except CriError:
        return
