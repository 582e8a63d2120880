"""Runs one short-lived actor in the forkserver, so that children share the caches that it fills.

Code that runs for the first times writes to memory: Python specialises bytecode (PEP 659) and fills caches, msgspec
reads the annotations of a type. Done before the fork, children only read those pages. Done in each child, it was 1 MB
there.

Takes some 60 ms. Leaves no ZeroMQ context, no thread and no open file: none survives a fork.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq

from actors._base import deaths
from actors._base.actor import Actor, ActorContext
from actors._base.messaging.bus import Bus
from actors._base.messaging.mailbox import MailboxActor, Timers
from actors._host.files import checkpoint
from actors._metrics.registry import clear_all
from proto.agent.actor import Describe, GetMetrics, Ping
from proto.agent.settings import Settings
from proto.agent.supervisor import Exited, Started
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message

log = logging.getLogger(__name__)

ROUNDS = 20
"""Python specialises an instruction after some ten runs."""
DEADLINE_S = 5.0
"""Seconds for the whole warm-up and for each of its waits."""


class _WarmupBus(Bus):
    """A bus that is its own only peer, on abstract sockets, with a stand-in for the supervisor's event stream."""

    def __init__(self, name: str) -> None:
        self._never = os.eventfd(0, os.EFD_CLOEXEC)
        super().__init__(name, 1, f"@nodevisor-warmup-{os.getpid()}", self._never)

    def _open_sockets(self) -> None:
        super()._open_sockets()
        events = self._socket(zmq.PUB)
        events.bind(self._address("world"))
        self._peers["world"] = events  # closed with the others

    def publish(self, event: Message) -> None:
        """Send an event as the supervisor does."""
        header = codec.encode_header(Kind.TELL, type(event).__name__, "supervisor", 1)
        frames = [b"", header, codec.encode(event)]
        self._do(lambda: self._peers["world"].send_multipart(frames, zmq.NOBLOCK))

    def close(self) -> None:
        """Close the descriptors that a Bus leaves to the end of its process."""
        os.close(self._wake_fd)
        os.close(self._never)


class _WarmupActor(Actor):
    """Asks, tells, waits and answers itself, then ends."""

    name = "actor"

    async def _exercise(self) -> None:
        me = self.peer(self.name)
        bus: Any = self.bus
        line = log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", ("",), None)
        formatter = logging.getLogger().handlers[0].formatter
        for incarnation in range(ROUNDS):
            bus.publish(Started(name="peer", incarnation=incarnation))
            await me.ask(Ping(), DEADLINE_S)
            await me.ask(Describe(), DEADLINE_S)
            me.tell(Ping())  # before another ask: it is handled before that one is answered
            await me.ask(GetMetrics(), DEADLINE_S)
            await self.sleep(0.0)
            bus.publish(Exited(name="peer", incarnation=incarnation, reason=""))
            if formatter is not None:
                formatter.format(line)
        self.bus.stop(0)
        self.stop()

    def on_ready(self) -> None:
        self.spawn(self._exercise(), "exercise")


class _ShortLivedActor(MailboxActor):
    """Ends as it starts."""

    def on_start(self) -> None:
        self.stop()


def _exercise_start(settings: Settings, timers: Timers) -> None:
    """Repeat a child's first steps as far as they leave nothing behind."""
    _ShortLivedActor.start(timers).actor_stopped.wait(DEADLINE_S)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.monotonic).result()
    record = deaths.record_path(settings.run_dir, _WarmupActor.name, 0)
    for path in (record, record.with_suffix(".stacks")):
        path.is_dir()
        with contextlib.suppress(OSError):
            path.read_bytes()
    Path("/").mkdir(mode=0o700, exist_ok=True)
    checkpoint.load(record.with_suffix(".json"), 1)
    signal.signal(signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))


def run(settings: Settings) -> None:
    """Run the actor to its end. Raises TimeoutError after `DEADLINE_S`; children can be forked all the same."""
    before = set(threading.enumerate())
    bus = _WarmupBus(_WarmupActor.name)
    for _ in range(ROUNDS):
        _exercise_start(settings, bus)
    bus.call_later(DEADLINE_S, lambda: bus.stop(1))
    _WarmupActor.start(ActorContext(settings=settings, bus=bus))
    code = bus.run()
    for thread in set(threading.enumerate()) - before:
        thread.join(DEADLINE_S)
    bus.close()
    clear_all()  # children count from 0 and know no actor of this name
    if code != 0:
        raise TimeoutError(f"cache warm-up took longer than {DEADLINE_S:g} s")
