"""Runs the real pod_workers actor and its workers in the test's process, without threads and sockets.

Stand-ins replace the bus, the runtime, time, chance and the checkpoint. All code of the actor, of the workers and of
their coroutines is that of an agent.
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
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.client import Cri
from actors._host.files import checkpoint
from actors.pod_workers.actor import PodWorkers
from proto.agent.supervisor import Exited, Started
from proto.wire.envelope import VERSION, Header, Kind
from proto.wire.errors import ActorDead, AskTimeout
from proto.wire.message import Message, Request
from tests.model.cri.calls import ModelCri

if TYPE_CHECKING:
    from tests.model.world import World


ACTORS = ("actors.pod_workers", "actors._base")
"""Packages whose time and random are replaced by the world's."""


class InlineThreads:
    """Replaces the threads of all mailboxes: runs their jobs in the order of submission."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        """Run until no job is left."""
        while self.jobs:
            self.jobs.popleft()()


class InlinePodWorkers(PodWorkers, PooledActor):
    """The actor without its own thread."""

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context)
        self.world: World = context.bus.world
        context.bus.actor = self

    def blocking(self, timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:  # noqa: ARG002
        """Call it at once."""
        future: Future[Any] = Future()
        try:
            future.set(function(*args))
        except Exception as error:
            future.set_error(error)
        return future

    def crash(self, error: BaseException) -> Any:
        """A bug that would end the process: there must be none."""
        self.world.errors.append(error)


class NoPrewarm(MigrationPrewarm):
    """Starts no thread and writes to no cgroup."""

    def _wake(self) -> None:
        """The model's runtime has no cgroups."""


class Bus:
    """Messages and timers of one process; silent once it is dead."""

    name = "pod_workers"
    timer_count = pending_asks = 0
    supervisor_pidfd = -1
    """The agent's ID is unknown, as in a replay: all incarnations are of one agent."""

    def is_tapped(self, _type_name: str) -> bool:
        return False

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

    def attach(self, inbox: Any) -> None:
        """The model has one thread."""

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
        """The answer to a peer's ask."""
        if isinstance(result, Exception):
            self.world.answers.append(result)

    def report_ready(self) -> None:
        self.ready = True
        self.world.clock.call_later(self.world.message_s, self._started)

    def _started(self) -> None:
        if not self.dead:
            self.world.pod_workers_started(self)

    def stop(self, code: int) -> None:
        """The model never stops an actor."""


class Process:
    """One incarnation. Made in a `patched` world only."""

    def __init__(self, world: World, incarnation: int) -> None:
        self.bus = Bus(world, incarnation)
        self.threads = InlineThreads()
        self.cri = ModelCri(world.runtime, world.call_fault, world.cancelled)
        PooledActor._pool = self.threads
        InlinePodWorkers.start(ActorContext(settings=world.settings, bus=self.bus))
        self.actor: InlinePodWorkers = self.bus.actor

    def receive(self, source: str, message: Message, kind: Kind = Kind.TELL) -> None:
        """A message of a peer."""
        header = Header(VERSION, kind, type(message).__name__, source, 0, 0, 0)
        reply_to = b"peer" if kind == Kind.ASK else None
        self.bus.deliver(Delivery(message, header, reply_to, 0))

    def kill(self) -> None:
        """SIGKILL: none of its jobs and timers run any more, and the runtime loses its connection."""
        self.bus.dead = True
        self.threads.jobs.clear()
        self.threads.submit = lambda _: None
        self.cri.close()
        for actor in (self.actor, *self.actor.workers.values()):
            pykka.ActorRegistry.unregister(actor.actor_ref)


class _Time(types.SimpleNamespace):
    """The module `time` as the actor sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class MemoryCheckpoints:
    """Replaces `actors._host.files.checkpoint` by files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def load(self, path: Any, version: int) -> Any:  # noqa: ARG002
        found = self.files.get(str(path))
        return None if found is None else msgspec.json.decode(found)

    read = load

    def save(self, path: Any, version: int, data: Any, *, sync: bool = True) -> None:  # noqa: ARG002
        self.files[str(path)] = msgspec.json.encode(data)


@contextmanager
def patched(world: World) -> Iterator[None]:
    """Replace time, random, the CRI client and the checkpoint of the actors by the world's."""
    clock = world.clock
    fake_time = _Time(time=lambda: clock.unix, monotonic=lambda: clock.now, time_ns=lambda: int(clock.unix * 1e9))
    threads = PooledActor._pool
    replaced: list[tuple[Any, str, Any]] = []
    disk = MemoryCheckpoints()
    for module in [one for name, one in sys.modules.items() if name.startswith(ACTORS)]:
        if getattr(module, "time", None) is time:
            replaced.append((module, "time", fake_time))
        if getattr(module, "Cri", None) is Cri:
            replaced.append((module, "Cri", lambda *_, **__: world.process.cri))
        if getattr(module, "MigrationPrewarm", None) is MigrationPrewarm:
            replaced.append((module, "MigrationPrewarm", NoPrewarm))
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
            PooledActor._pool = threads


class _Errors(logging.Handler):
    """Collects errors that are logged with a traceback: a worker survives them, the model fails."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._world.errors.append(error)


@contextmanager
def errors_of_ours(world: World) -> Iterator[None]:
    """Drop the logs of the actors, but collect unexpected exceptions as the world's errors."""
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
