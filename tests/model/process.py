"""A pod_workers process without a process: the real actor and its workers on a mailbox loop of the test's.

What the process has of the outside (bus, runtime, time, chance, its checkpoint) is put in its place; the code of the
actor, of every worker and of the coroutines between them is what runs in an agent.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import time
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pykka

from actors._base import PooledActor
from actors._base.actor import ActorContext
from actors._base.messaging.bus import Delivery
from actors._base.messaging.futures import Future
from actors._cri.client import Cri
from actors._host.files import checkpoint
from actors.pod_workers.actor import PodWorkers
from proto.agent.supervisor import Exited, Started
from proto.wire.envelope import VERSION, Header, Kind
from proto.wire.errors import ActorDead, AskTimeout
from proto.wire.message import Message, Request
from tests.model.calls import ModelCri

if TYPE_CHECKING:
    from tests.model.world import World


ACTORS = ("actors.pod_workers", "actors._base")
"""Packages in which time and chance are the world's."""


class ThreadPool:
    """The threads of all mailboxes: one after the other, in the order they asked."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        """Until nobody has anything to do."""
        while self.jobs:
            self.jobs.popleft()()


class InlinePodWorkers(PodWorkers, PooledActor):
    """The actor without a thread of its own."""

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.world: World = context.bus.world
        context.bus.actor = self

    def blocking(self, timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:  # noqa: ARG002
        """Done at once."""
        future: Future[Any] = Future()
        try:
            future.set(function(*args))
        except Exception as error:
            future.set_error(error)
        return future

    def crash(self, error: BaseException) -> Any:
        """An error of ours ends the process: there should be none."""
        self.world.errors.append(error)


class Bus:
    """Messages and timers of one process; silent once it is dead."""

    name = "pod_workers"
    tapped = False
    timer_count = pending_asks = 0

    def __init__(self, world: World, incarnation: int) -> None:
        self.world = world
        self.incarnation = incarnation
        self.dead = False
        self.ready = False
        self.dropped: Counter[str] = Counter()
        self.deliver: Callable[[Delivery], None] = lambda _: None
        self.on_peer_event: Callable[[Started | Exited], None] = lambda _: None
        self.on_terminate: Any = None
        self.dump: Any = None
        self.actor: Any = None
        self._pending: dict[Future[Any], str] = {}

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        return self.world.clock.call_later(delay_s, lambda: None if self.dead else callback())

    def tell(self, target: str, message: Message) -> None:
        if not self.dead:
            peer = self.world.peers[target]
            self.world.clock.call_later(self.world.message_s, lambda: peer.tell(message))

    def ask(self, target: str, request: Request[Any], timeout_s: float) -> Future[Any]:
        peer, future = self.world.peers[target], Future[Any]()
        incarnation = peer.incarnation
        self._pending[future] = target
        future.add_done_callback(lambda done: self._pending.pop(done, None))

        def answer() -> None:
            if self.dead or future.done() or peer.incarnation != incarnation:
                return
            try:
                value = peer.ask(request)
            except AskTimeout:
                return  # no answer at all
            except Exception as error:
                future.set_error(error)
            else:
                future.set(value)

        self.world.clock.call_later(self.world.message_s + peer.answer_s, answer)
        self.call_later(timeout_s, lambda: future.set_error(AskTimeout(f"{target} did not answer")))
        return future

    def peer_exited(self, name: str, incarnation: int) -> None:
        for future in [future for future, target in self._pending.items() if target == name]:
            future.set_error(ActorDead(f"{name} ended"))
        self.on_peer_event(Exited(name=name, incarnation=incarnation, reason="killed"))

    def answer(self, _: Delivery, result: Message | BaseException) -> None:
        """To an ask of a peer."""
        if isinstance(result, Exception):
            self.world.answers.append(result)

    def report_ready(self) -> None:
        self.ready = True
        self.world.clock.call_later(self.world.message_s, self._started)

    def _started(self) -> None:
        if not self.dead:
            self.world.pod_workers_started(self)

    def stop(self, code: int) -> None:
        """Asked to: not in the model."""


class Process:
    """One incarnation. Made in a `patched` world only."""

    def __init__(self, world: World, incarnation: int) -> None:
        self.bus = Bus(world, incarnation)
        self.pool = ThreadPool()
        self.cri = ModelCri(world.runtime, world.call_fault, world.cancelled)
        PooledActor._pool = self.pool
        InlinePodWorkers.start(ActorContext(settings=world.settings, bus=self.bus))
        self.actor: InlinePodWorkers = self.bus.actor

    def receive(self, source: str, message: Message, kind: Kind = Kind.TELL) -> None:
        """A message of a peer."""
        header = Header(VERSION, kind, type(message).__name__, source, 0, 0, 0)
        reply_to = b"peer" if kind == Kind.ASK else None
        self.bus.deliver(Delivery(message, header, reply_to, 0))

    def kill(self) -> None:
        """SIGKILL: nothing of it happens any more, and the runtime sees its connection end."""
        self.bus.dead = True
        self.pool.jobs.clear()
        self.pool.submit = lambda _: None
        self.cri.close()
        for actor in (self.actor, *self.actor.workers.values()):
            pykka.ActorRegistry.unregister(actor.actor_ref)


class _Time(types.SimpleNamespace):
    """The module `time` as the actor sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Memory:
    """`actors._host.files.checkpoint` with a disk in memory, where it is atomic too."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def load(self, path: Any, version: int) -> Any:  # noqa: ARG002
        found = self.files.get(str(path))
        return None if found is None else msgspec.json.decode(found)

    def save(self, path: Any, version: int, data: Any, *, sync: bool = True) -> None:  # noqa: ARG002
        self.files[str(path)] = msgspec.json.encode(data)


@contextmanager
def patched(world: World) -> Iterator[None]:
    """Time, chance, the client of the runtime and the checkpoint of the actors are the world's meanwhile."""
    clock = world.clock
    fake_time = _Time(time=lambda: clock.now, monotonic=lambda: clock.now, time_ns=lambda: int(clock.now * 1e9))
    pool = PooledActor._pool
    replaced: list[tuple[Any, str, Any]] = []
    disk = Memory()
    for module in [one for name, one in sys.modules.items() if name.startswith(ACTORS)]:
        if getattr(module, "time", None) is time:
            replaced.append((module, "time", fake_time))
        if getattr(module, "Cri", None) is Cri:
            replaced.append((module, "Cri", lambda *_, **__: world.process.cri))
        if getattr(module, "checkpoint", None) is checkpoint:
            replaced.append((module, "checkpoint", disk))
        if getattr(module, "random", None) is random:
            replaced.append((module, "random", world.rng))
    with contextlib.ExitStack() as stack:
        for module, name, fake in replaced:
            stack.enter_context(mock.patch.object(module, name, fake))
        stack.enter_context(errors_of_ours(world))
        try:
            yield
        finally:
            PooledActor._pool = pool


class _Errors(logging.Handler):
    """Keeps what is logged as an error with a traceback: one pod's worker survives those, and the model does not."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._world.errors.append(error)


@contextmanager
def errors_of_ours(world: World) -> Iterator[None]:
    """Logs of the actors go nowhere, but unexpected exceptions in them are the world's errors."""
    logger, handler = logging.getLogger("actors"), _Errors(world)
    before = logger.level, logger.propagate
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
