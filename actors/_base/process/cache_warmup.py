"""One actor's life in small, played in the forkserver before it forks: what it leaves in memory all children share.

Code that runs for the first times writes: Python specialises bytecode (PEP 659) and fills caches, msgspec reads the
annotations of a type. Done once here it is in pages that children only read; done in each child it was 1 MB there,
14 MB over all. Takes some 60 ms. Leaves no ZeroMQ context, no thread and no file open: none survives a fork.
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
from actors._base.actor import Actor, Runtime
from actors._base.messaging.bus import Bus
from actors._base.messaging.mailbox import MailboxActor, Timers
from actors._host.files import checkpoint
from actors._metrics.registry import clear_all
from proto.agent.actor import Describe, GetMetrics, Ping
from proto.agent.settings import Settings
from proto.agent.supervisor import Exited, Started
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message, prepare_types

log = logging.getLogger(__name__)

ROUNDS = 20
"""Python specialises an instruction after some ten runs."""
LONGEST_S = 5.0
"""Then it is over, whatever it waits for."""


class _Stage(Bus):
    """A bus with itself as its only peer, on sockets in no directory, and with the supervisor's for events."""

    def __init__(self, name: str) -> None:
        self._never = os.eventfd(0, os.EFD_CLOEXEC)
        super().__init__(name, 1, f"@nodevisor-rehearsal-{os.getpid()}", self._never)

    def _open_sockets(self) -> None:
        super()._open_sockets()
        world = self._socket(zmq.PUB)
        world.bind(self._address("world"))
        self._peers["world"] = world  # closed with the others

    def publish(self, event: Message) -> None:
        """As if the supervisor published it."""
        header = codec.encode_header(Kind.TELL, type(event).__name__, "supervisor", 1)
        frames = [b"", header, codec.encode(event)]
        self._do(lambda: self._peers["world"].send_multipart(frames, zmq.NOBLOCK))

    def leave(self) -> None:
        """Close what a Bus leaves to the end of its process."""
        os.close(self._wake_fd)
        os.close(self._never)


class _Player(Actor):
    """Asks, tells, waits and answers itself, then ends."""

    name = "actor"

    async def _play(self) -> None:
        me = self.peer(self.name)
        stage: Any = self.bus
        line = log.makeRecord(log.name, logging.INFO, __file__, 0, "%s", ("",), None)
        formatter = logging.getLogger().handlers[0].formatter
        for incarnation in range(ROUNDS):
            stage.publish(Started(name="peer", incarnation=incarnation))
            await me.ask(Ping(), LONGEST_S)
            await me.ask(Describe(), LONGEST_S)
            me.tell(Ping())  # before another ask: it is handled before that one is answered
            await me.ask(GetMetrics(), LONGEST_S)
            await self.sleep(0.0)
            stage.publish(Exited(name="peer", incarnation=incarnation, reason=""))
            if formatter is not None:
                formatter.format(line)
        self.bus.stop(0)
        self.stop()

    def on_ready(self) -> None:
        self.spawn(self._play(), "play")


class _Beginner(MailboxActor):
    """Is made and ends."""

    def on_start(self) -> None:
        self.stop()


def _begin(settings: Settings, timers: Timers) -> None:
    """What a child's first moments are made of, as far as it leaves nothing: kinds of objects, names of files."""
    _Beginner.start(timers).actor_stopped.wait(LONGEST_S)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.monotonic).result()
    record = deaths.record_path(settings.run_dir, _Player.name, 0)
    for path in (record, record.parent / f"{record.stem}.stacks"):
        path.is_dir()
        with contextlib.suppress(OSError):
            path.read_bytes()
    Path("/").mkdir(mode=0o700, exist_ok=True)
    checkpoint.load(record.with_suffix(".json"), 1)
    signal.signal(signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_DFL))


def rehearse(settings: Settings) -> None:
    """Prepare every message type that is loaded, and play. When it raises, children can be forked all the same."""
    prepare_types()
    before = set(threading.enumerate())
    stage = _Stage(_Player.name)
    for _ in range(ROUNDS):
        _begin(settings, stage)
    stage.call_later(LONGEST_S, lambda: stage.stop(1))
    _Player.start(Runtime(settings=settings, bus=stage))
    code = stage.run()
    for thread in set(threading.enumerate()) - before:
        thread.join(LONGEST_S)
    stage.leave()
    clear_all()  # children begin at 0, and know no actor of this name
    if code != 0:
        raise TimeoutError(f"the rehearsal took longer than {LONGEST_S:g} s")
