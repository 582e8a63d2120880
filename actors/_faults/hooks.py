"""The faults that last: each hook begins one in this process and returns the function that ends it."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from actors._base.messaging.bus import Bus, Delivery
from proto.agent.faults import Fault

Undo = Callable[[], None]
LEAK_STEP_S = 0.05
LEAK_STEPS = 20
"""A leak is complete after a second."""


def left_s(fault: Fault) -> float:
    """Seconds until its end."""
    return fault.until - time.monotonic()


def lasts(fault: Fault) -> bool:
    """True before its end."""
    return left_s(fault) > 0


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace a function by `make(function)` until the returned function is called.

    Of several replacements of one function, a later one may stay when an earlier one ends, so each passes through then.
    """
    before = getattr(owner, name)
    changed, over = make(before), threading.Event()

    def either(*args: Any, **named: Any) -> Any:
        return (before if over.is_set() else changed)(*args, **named)

    setattr(owner, name, either)

    def undo() -> None:
        over.set()
        if getattr(owner, name) is either:
            setattr(owner, name, before)

    return undo


def before_delivery(bus: Bus, fault: Fault, function: Callable[[], None]) -> None:
    """Run the function in the mailbox: now, or before the next message of one of the types in `words`."""
    if not fault.words:
        bus.post(function)
        return
    deliver = bus.deliver

    def watch(delivery: Delivery) -> None:
        if delivery.header.type in fault.words:
            bus.post(function)
        deliver(delivery)

    bus.deliver = watch


def busy(bus: Bus, fault: Fault) -> Undo:
    """Keep the mailbox's thread busy in Python code."""
    over = threading.Event()

    def spin() -> None:
        while not over.is_set() and lasts(fault):
            sum(range(10_000))

    bus.post(spin)
    return over.set


def leak(bus: Bus, fault: Fault) -> Undo:
    """Allocate and touch memory, in steps."""
    kept: list[bytearray] = []
    over = threading.Event()

    def grow() -> None:
        if not over.is_set() and len(kept) < LEAK_STEPS:
            kept.append(bytearray(os.urandom(4096) * int(fault.value * 256 / LEAK_STEPS)))
            bus.call_later(LEAK_STEP_S, grow)

    grow()

    def undo() -> None:
        over.set()
        kept.clear()

    return undo


def slow(bus: Bus, fault: Fault) -> Undo:
    """Delay messages to the peer, in order. The end of the fault sends the waiting messages first."""
    waiting: deque[Callable[[], object]] = deque()
    lock, over = threading.Lock(), threading.Event()

    def send_next() -> None:
        with lock:
            if waiting:
                waiting.popleft()()

    def make(send: Any) -> Any:
        def later(target: str, header: bytes, body: bytes) -> bool:
            with lock:
                if target != fault.peer or over.is_set():
                    return bool(send(target, header, body))
                waiting.append(lambda: send(target, header, body))
            bus.call_later(fault.value, send_next)
            return True

        return later

    restore = replace(bus, "_send", make)

    def undo() -> None:
        with lock:
            while waiting:
                waiting.popleft()()
            over.set()
        restore()

    return undo


def lose(bus: Bus, fault: Fault) -> Undo:
    """Drop a share of the messages to the peer."""

    def make(send: Any) -> Any:
        def maybe(target: str, header: bytes, body: bytes) -> bool:
            if target == fault.peer and random.random() < fault.value:
                return True
            return bool(send(target, header, body))

        return maybe

    return replace(bus, "_send", make)


def full(bus: Bus, fault: Fault) -> Undo:
    """Refuse messages to the peer, and count them as the bus does."""

    def make(send: Any) -> Any:
        def refuse(target: str, header: bytes, body: bytes) -> bool:
            if target != fault.peer:
                return bool(send(target, header, body))
            bus.dropped["queue_full"] += 1
            return False

        return refuse

    return replace(bus, "_send", make)


def clock(_: Bus, fault: Fault) -> Undo:
    """Move the time of day that Python code of this process reads with `time`. Timers are monotonic, as ever.

    gRPC reads the real time. Its Python part makes deadlines of it for its part in C. A real jump moves both.
    """
    offset_ns = int(fault.value * 1e9)
    return _all(
        replace(time, "time", lambda read: lambda: read() + (0.0 if _is_read_by_grpc() else fault.value)),
        replace(time, "time_ns", lambda read: lambda: read() + (0 if _is_read_by_grpc() else offset_ns)),
    )


def _is_read_by_grpc() -> bool:
    """True when the function that this module replaced was called there."""
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "grpc"


def disk(_: Bus, __: Fault) -> Undo:
    """Fail writes of checkpoints and of the events' journal."""
    from actors._host.files import checkpoint  # noqa: PLC0415 - few processes have faults

    def no_space(path: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    return replace(checkpoint, "write_file", lambda _: no_space)


def cri(_: Bus, fault: Fault) -> Undo:
    """Leave calls whose request names the pod without an answer until their deadline. The end fails them."""
    from actors._cri import client  # noqa: PLC0415 - not every actor has a client
    from actors._faults.silent_call import SilentCall  # noqa: PLC0415

    words = [word.encode() for word in fault.words]
    calls: weakref.WeakSet[SilentCall] = weakref.WeakSet()

    def make(start: Any) -> Any:
        def silent(self: Any, rpc: str, request: bytes, deadline: float) -> Any:
            if not any(word in request for word in words):
                return start(self, rpc, request, deadline)
            call = SilentCall(rpc, deadline)
            calls.add(call)
            return call

        return silent

    def fail() -> None:
        for call in list(calls):
            call.fail()

    return _all(replace(client.Cri, "_start", make), fail)


def mount(_: Bus, fault: Fault) -> Undo:
    """Stop the helper process of volume that gets steps on the pod's volumes, as a dead mount does. The end continues
    it."""
    from actors.volume.helper import pool  # noqa: PLC0415 - only volume has helpers
    from actors.volume.steps.codec import encode  # noqa: PLC0415

    words = [word.encode() for word in fault.words]
    stopped: weakref.WeakSet[Any] = weakref.WeakSet()

    def make(assign: Any) -> Any:
        def hang(self: Any, one: Any, job: Any) -> None:
            assign(self, one, job)
            if any(word in encode(job.steps) for word in words):
                stopped.add(one)
                _signal(one, signal.SIGSTOP)

        return hang

    def go_on() -> None:
        for one in list(stopped):
            _signal(one, signal.SIGCONT)

    return _all(replace(pool.Pool, "_assign", make), go_on)


def _signal(helper: Any, number: signal.Signals) -> None:
    if not helper.exited:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(helper.pidfd, number)


def throttle(_: Bus, __: Fault) -> Undo:
    """Answer calls of the API server with 429."""
    from actors._kube.errors import ApiError  # noqa: PLC0415 - many agents have no API server

    return _of_the_api_server(lambda: ApiError.of(429, b"an injected fault throttles this client", "1"))


def away(_: Bus, __: Fault) -> Undo:
    """Fail calls of the API server as a broken network does."""
    from actors._kube.errors import Unreachable  # noqa: PLC0415

    return _of_the_api_server(lambda: Unreachable("an injected fault keeps the API server away"))


def _of_the_api_server(error: Callable[[], Exception]) -> Undo:
    from actors._kube.connection.session import Session  # noqa: PLC0415

    def fail(*_: Any, **__: Any) -> Any:
        raise error()

    return _all(*(replace(Session, name, lambda _: fail) for name in ("answer", "stream")))


def _all(*ends: Undo) -> Undo:
    def undo() -> None:
        for end in ends:
            end()

    return undo


HOOKS: dict[str, Callable[[Bus, Fault], Undo]] = {
    "busy": busy,
    "leak": leak,
    "slow": slow,
    "lose": lose,
    "full": full,
    "clock": clock,
    "disk": disk,
    "cri": cri,
    "mount": mount,
    "throttle": throttle,
    "away": away,
}
