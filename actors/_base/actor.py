"""The base class of managers: one actor per process, with a handler for each message type.

A manager subclasses `Actor`, sets `name` and `asks`, marks handlers with `@handles(Type)` and restores its state in
`rebuild`. See ARCHITECTURE.md, "An actor".
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, NoReturn, TypeVar

import msgpack

from actors._base import deaths, profile, recording, views
from actors._base.messaging import tracing, waits
from actors._base.messaging.bus import Bus, Delivery, PeerEvent
from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import Call, MailboxActor
from actors._base.messaging.ref import RemoteRef
from actors._base.messaging.tasks import Cancelled, Task
from actors._base.messaging.tracing import Span
from actors._base.process.thread_pool import ThreadPool
from actors._metrics import agent as metrics
from actors._metrics.registry import take_all
from proto.agent import registry
from proto.agent.actor import (
    Counter,
    Describe,
    Description,
    Evaluate,
    Evaluated,
    GetMetrics,
    Metrics,
    Ping,
    Pong,
    Profile,
    Samples,
    SetVerbosity,
    Stop,
)
from proto.agent.settings import Settings
from proto.agent.supervisor import Started, TellsLost
from proto.agent.tracing import SpanKind
from proto.common import logs
from proto.common.until import Until
from proto.waits.record import AskId
from proto.wire.envelope import Header, Kind
from proto.wire.errors import AskTimeout, ProtocolError, Refused
from proto.wire.message import Done, Message

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])
log = logging.getLogger(__name__)

MAX_PROFILE_S = 600
_SENDERS = registry.NAMES | {"supervisor", "console"}
"""Senders that are told apart; a header may name any other."""
MAX_WAITING = 10_000
"""Messages that wait until the actor is ready. Further asks are refused, further tells dropped."""


def handles(kind: type[Message]) -> Callable[[H], H]:
    """Mark a method as the handler of one message type.

    A handler returns None for a tell. For a Request it returns the answer, or a coroutine of it (`async def`). It
    raises `Refused` to refuse; any other exception ends the actor, with its traceback saved.
    """

    def mark(method: H) -> H:
        method.__handles__ = kind  # type: ignore[attr-defined]
        return method

    return mark


@dataclass
class Tally:
    """Counts and times of one message type."""

    handled: int = 0
    failed: int = 0
    total_s: float = 0.0
    max_s: float = 0.0

    def add(self, took_s: float, *, failed: bool) -> None:
        self.handled += 1
        self.failed += failed
        self.total_s += took_s
        self.max_s = max(self.max_s, took_s)


@dataclass
class ActorContext:
    """The process around an actor: settings, bus and start time (monotonic)."""

    settings: Settings
    bus: Bus
    started: float = field(default_factory=time.monotonic)


class Actor(MailboxActor):
    """One manager of the kubelet. All methods run in its mailbox thread unless their docstring differs."""

    name: ClassVar[str]
    asks: ClassVar[frozenset[str]] = frozenset()
    """The actors that it asks. A test checks that the graph of all actors has no cycle."""
    blocking_threads: ClassVar[int] = 4
    """The most calls of `blocking` at once. Threads are started on demand and reused."""
    _handlers: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._handlers = {
            member.__handles__: attribute
            for owner in reversed(cls.__mro__)
            for attribute, member in vars(owner).items()
            if hasattr(member, "__handles__")
        }

    def __init__(self, context: ActorContext) -> None:
        super().__init__(context.bus)
        self.settings = context.settings
        self.bus = context.bus
        self.ready = False
        self._started = context.started
        self._waiting_until_ready: list[Callable[[], object]] = []
        self._tallies: dict[str, Tally] = {}
        self._senders: dict[str, list[float]] = {}
        """Count and summed queue time of messages by sender."""
        self._blocking_pool: ThreadPool | None = None
        self._peers: dict[str, int] = {}
        self._running = waits.Running()
        # Here and not in on_start: the bus runs as soon as the thread is started, and drops what it cannot deliver.
        self.bus.deliver = self._deliver
        self.bus.attach(self.inbox)
        self.bus.on_peer_event = lambda event: self.post(self._on_peer_event, event, name=type(event).__name__)
        self.bus.on_terminate = lambda reason: self.post(self._terminate, reason)
        self.bus.io_handlers = self._io_handlers()
        self.bus.post = self.post

    # Methods that a manager overrides

    async def rebuild(self) -> None:
        """Restore the state from the runtime, the disk and lower actors.

        Messages wait until it returns; then the actor is ready. It must return soon even when others are down: fetch
        what is missing later."""

    def on_ready(self) -> None:
        """Start periodic work. Called once, when the actor becomes ready."""

    def on_peer_started(self, name: str, incarnation: int) -> None:
        """Send a peer the full state that it gets from here. Called when the peer becomes ready, once this actor is;
        also for peers that were ready before this actor."""

    def on_tells_lost(self, name: str, incarnation: int) -> None:
        """Send a peer again what it may have missed: not all tells from here have arrived (`messaging/receipts`)."""
        self.on_peer_started(name, incarnation)

    def on_peer_exited(self, name: str, incarnation: int) -> None:
        """React to the end of a peer's incarnation. Called only once ready."""

    def on_shutdown(self) -> None:
        """Write checkpoints before a requested stop. Called only once ready. A killed actor does not get here, so
        nothing may depend on it."""

    def describe(self) -> dict[str, Any]:
        """The manager's state for a console: plain values, small, no secrets."""
        return {}

    def measure(self) -> None:
        """Set gauges that are derived from the state, before metrics are read. Called only once ready."""

    # Methods that a manager uses

    def peer(self, name: str) -> RemoteRef:
        """A reference to the actor of that name."""
        return RemoteRef(self.bus, name)

    def every(
        self, until: Until, function: Callable[[], Coroutine[Any, None, float | None] | None], name: str
    ) -> Task[None]:
        """Run periodically as wait.Until does. An exception is logged and counted, and the loop continues. Cancel the
        task to end it. A coroutine may return the seconds until its next run, in place of the period."""
        return self.spawn(self._loop(until, function, name), f"every:{name}")

    async def _loop(
        self, until: Until, function: Callable[[], Coroutine[Any, None, float | None] | None], name: str
    ) -> None:
        while True:
            started = time.monotonic()
            failed, pause_s = False, None
            try:
                result = function()
                if result is not None:
                    pause_s = await result
            except Exception:
                failed = True
                log.exception("%s failed; it runs again after its period", name)
            finished = time.monotonic()
            self._tally(f"every:{name}", finished - started, failed=failed)
            if pause_s is None:
                pause_s = until.next_start(started, finished, random.random) - finished
            await self.sleep(pause_s)

    def blocking(self, timeout_s: float, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a blocking function in a pool of `blocking_threads`. The future fails with AskTimeout after `timeout_s`;
        its thread stays in use until the function returns."""
        if self._blocking_pool is None:
            self._blocking_pool = ThreadPool(self.bus, "blocking", self.blocking_threads)
        future: Future[T] = Future()
        name = getattr(function, "__name__", "call")
        waiting = waits.begin("blocking", "thread/0", name, timeout_s=timeout_s)

        def work() -> None:
            waiting.change(target=f"thread/{threading.get_native_id()}")
            try:
                future.set(recording.record_blocking(name, lambda: function(*args)))
            except BaseException as error:
                future.set_error(error)
            finally:
                waiting.end()

        timer = self.bus.call_later(
            timeout_s, lambda: future.set_error(AskTimeout(f"{name} did not return within {timeout_s:g} s"))
        )
        future.add_done_callback(lambda _: timer.cancel())
        self._blocking_pool.submit(work)
        return future

    # Start and end

    def on_start(self) -> None:
        """Pykka's hook: rebuild."""
        self.spawn(self._begin(), "rebuild")

    async def _begin(self) -> None:
        await self.rebuild()
        self.ready = True
        self.bus.report_ready()
        self.on_ready()
        early, self._waiting_until_ready = self._waiting_until_ready, []
        for work in early:
            work()
        for name, incarnation in list(self._peers.items()):
            self.on_peer_started(name, incarnation)

    def _on_peer_event(self, event: PeerEvent) -> None:
        if isinstance(event, Started):
            self._peers[event.name] = event.incarnation
            if self.ready:
                self.on_peer_started(event.name, event.incarnation)
        elif isinstance(event, TellsLost):
            if self.ready and self._peers.get(event.name) == event.incarnation:
                self.on_tells_lost(event.name, event.incarnation)
        else:
            if self._peers.get(event.name) == event.incarnation:
                del self._peers[event.name]
            if self.ready:
                self.on_peer_exited(event.name, event.incarnation)

    def when_ready(self, function: Callable[..., object], *args: Any) -> bool:
        """Call the function once the actor is ready. False when `MAX_WAITING` calls wait already."""
        if self.ready:
            function(*args)
        elif len(self._waiting_until_ready) < MAX_WAITING:
            self._waiting_until_ready.append(lambda: function(*args))
        else:
            return False
        return True

    def _terminate(self, reason: str) -> None:
        log.info("stopping: %s", reason)
        if self.ready:
            self.on_shutdown()
        if tracing.recorder is not None:
            tracing.recorder.flush()
        self.bus.stop(0)
        self.stop()

    def on_failure(
        self,
        exception_type: type[BaseException] | None,  # noqa: ARG002 - Pykka's signature
        exception_value: BaseException | None,
        traceback: TracebackType | None,  # noqa: ARG002 - Pykka's signature
    ) -> None:
        """Pykka's hook: save the traceback of an unexpected exception and end the process."""
        if exception_value is not None:
            self.crash(exception_value)

    def crash(self, error: BaseException) -> NoReturn:
        """Save the traceback and end the process."""
        if (recorder := recording.current) is not None:
            recorder.crash(error)
        deaths.crash(self.settings.run_dir, self.name, self.bus.incarnation, error, recording.replay_line(self.name))

    # Messages

    def _deliver(self, delivery: Delivery) -> None:
        self.post(self._receive, delivery, name=delivery.header.type)
        if (table := waits.table()) is not None:
            table.arrived(self.mailbox_depth())

    def on_receive(self, message: Any) -> Any:
        """Record the message in its handler, then handle it."""
        self._running.begin(*_shown(message), self.mailbox_depth())
        try:
            return super().on_receive(message)
        finally:
            waits.SUBJECT.set(None)
            self._running.end()

    def _receive(self, delivery: Delivery) -> None:
        attribute = self._handlers.get(type(delivery.message))
        if attribute is None:
            self.bus.dropped["unknown_type"] += 1
            self.bus.answer(delivery, ProtocolError(f"{self.name} has no handler for {delivery.header.type}"))
        elif self.ready:
            self._handle(delivery, getattr(self, attribute))
        elif (early := _BEFORE_READY.get(type(delivery.message))) is not None:
            self._handle(delivery, functools.partial(early, self))
        elif not self.when_ready(self._handle, delivery, getattr(self, attribute)):
            self.bus.drop_early(delivery)
            self.bus.answer(delivery, Refused("Starting", f"{self.name} is starting, and {MAX_WAITING} messages wait"))

    def _handle(self, delivery: Delivery, handler: Callable[[Any], Any]) -> None:
        began = time.monotonic()
        header = delivery.header
        if header.kind == Kind.ASK:
            waits.SUBJECT.set(waits.Subject(f"actor/{self.name}", ask=_ask_of(header)))
        kind: SpanKind = "server" if header.kind == Kind.ASK else "consumer"
        with tracing.span(f"{self.name}/{header.type}", kind, parent=header.trace) as span:
            try:
                result = handler(delivery.message)
            except Refused as refusal:
                self.bus.answer(delivery, refusal)
                self._account(delivery, began, failed=True)
            except Exception as error:
                self.bus.answer(delivery, error)
                raise
            else:
                if inspect.iscoroutine(result):
                    if span is not None:
                        span.goes_on = True
                    self.spawn(self._answer_from(delivery, began, result, span), header.type)
                else:
                    self._finish(delivery, began, result)

    async def _answer_from(
        self, delivery: Delivery, began: float, handler: Coroutine[Any, None, Message | None], span: Span | None
    ) -> None:
        # Around the handler, not after it: a handler that refuses before its first await ends before spawn returns.
        waiting = waits.begin("handler", what=delivery.header.type)
        try:
            self._finish(delivery, began, await handler)
        except Refused as refusal:
            self.bus.answer(delivery, refusal)
            self._account(delivery, began, failed=True)
        except Cancelled:
            self.bus.answer(delivery, Refused("Cancelled", "the handler was cancelled"))
        except Exception as error:
            self.bus.answer(delivery, error)
            raise
        finally:
            waiting.end()
            if span is not None:
                span.end()

    def _finish(self, delivery: Delivery, began: float, result: Message | None) -> None:
        if delivery.reply_to is not None:
            self.bus.answer(delivery, Done() if result is None else result)
        self._account(delivery, began, failed=False)

    def _account(self, delivery: Delivery, began: float, *, failed: bool) -> None:
        ended = time.monotonic()
        self._tally(delivery.header.type, ended - began, failed=failed)
        queued_s = max(0.0, began - delivery.header.sent_ns / 1e9)
        metrics.MAILBOX_DELAY.observe(queued_s, self.name)
        source = delivery.header.source
        sender = self._senders.setdefault(source if source in _SENDERS else "other", [0, 0.0])
        sender[0] += 1
        sender[1] += queued_s
        if self.bus.is_tapped(delivery.header.type):
            record = {
                "type": delivery.header.type,
                "source": delivery.header.source,
                "incarnation": delivery.header.incarnation,
                "bytes": delivery.size,
                "queued_ms": round((began - delivery.header.sent_ns / 1e9) * 1000, 3),
                "handled_ms": round((ended - began) * 1000, 3),
                "failed": failed,
            }
            self.bus.publish_tap([delivery.header.type.encode(), msgpack.packb(record)])

    def _tally(self, key: str, took_s: float, *, failed: bool) -> None:
        self._tallies.setdefault(key, Tally()).add(took_s, failed=failed)

    @handles(Ping)
    def on_ping(self, _: Ping) -> Pong:
        return Pong(mailbox=self.mailbox_depth())

    @handles(Stop)
    def on_stop_asked(self, _: Stop) -> None:
        self._terminate("asked to")

    @handles(SetVerbosity)
    def on_set_verbosity(self, request: SetVerbosity) -> Done:
        if wrong := logs.wrong_verbosity(request.v):
            raise Refused("InvalidVerbosity", wrong, retry=False)
        logs.set_verbosity(request.v)
        return Done()

    @handles(Profile)
    async def on_profile(self, request: Profile) -> Samples:
        if not 0 < request.seconds <= MAX_PROFILE_S:
            raise Refused("InvalidTime", f"cannot profile for {request.seconds:g} s: at most {MAX_PROFILE_S} s")
        return Samples(samples=await profile.sample(request.seconds))

    @handles(Evaluate)
    def on_evaluate(self, request: Evaluate) -> Evaluated:
        return views.evaluate(self, request.expression)

    @handles(Describe)
    def on_describe(self, _: Describe) -> Description:
        counters = (
            Counter(
                type=key,
                handled=tally.handled,
                failed=tally.failed,
                total_ms=round(tally.total_s * 1000, 3),
                max_ms=round(tally.max_s * 1000, 3),
            )
            for key, tally in sorted(self._tallies.items())
        )
        return Description(
            name=self.name,
            pid=os.getpid(),
            incarnation=self.bus.incarnation,
            uptime_s=time.monotonic() - self._started,
            mailbox=self.mailbox_depth(),
            tasks=len(self.tasks),
            timers=self.bus.timer_count,
            pending_asks=self.bus.pending_asks,
            dropped=dict(self.bus.dropped),
            messages=tuple(counters),
            state=self.describe(),
        )

    @handles(GetMetrics)
    def on_get_metrics(self, _: GetMetrics) -> Metrics:
        if self.ready:
            self.measure()
        self._measure_self()
        return Metrics(incarnation=self.bus.incarnation, samples=take_all())

    def _measure_self(self) -> None:
        name = self.name
        metrics.MAILBOX_DEPTH.set(self.mailbox_depth(), name)
        metrics.TASKS.set(len(self.tasks), name)
        metrics.PENDING_ASKS.set(self.bus.pending_asks, name)
        tallies = sorted(self._tallies.items())
        metrics.MESSAGES.replace(((name, key), tally.handled) for key, tally in tallies)
        metrics.MESSAGES_FAILED.replace(((name, key), tally.failed) for key, tally in tallies if tally.failed)
        metrics.MESSAGE_SECONDS.replace(((name, key), tally.total_s) for key, tally in tallies)
        senders = sorted(self._senders.items())
        metrics.MESSAGES_FROM.replace(((name, source), count) for source, (count, _) in senders)
        metrics.QUEUE_SECONDS_FROM.replace(((name, source), queued_s) for source, (_, queued_s) in senders)
        metrics.MESSAGES_DROPPED.replace(((name, cause), count) for cause, count in self.bus.dropped.items())

    def _io_handlers(self) -> dict[type[Message], Callable[[Any], Message]]:
        """Requests about this actor that the I/O thread answers."""
        return {kind: functools.partial(view, self) for kind, view in views.IO_VIEWS.items()}


_BEFORE_READY: dict[type[Message], Callable[..., Any]] = {
    Ping: Actor.on_ping,
    Stop: Actor.on_stop_asked,
    SetVerbosity: Actor.on_set_verbosity,
    GetMetrics: Actor.on_get_metrics,
    Profile: Actor.on_profile,
}
"""Handlers of the base class, also used before the actor is ready: a manager's own need the state from `rebuild`."""


def _ask_of(header: Header) -> AskId:
    return header.source, header.incarnation, header.correlation


def _shown(message: Any) -> tuple[str, AskId | None]:
    """The text of a message in its handler, and its ask if it is one."""
    if isinstance(message, Call) and message.args and isinstance(message.args[0], Delivery):
        header = message.args[0].header
        return f"{header.type} from {header.source}", _ask_of(header) if header.kind == Kind.ASK else None
    return message.name if isinstance(message, Call) else type(message).__name__, None
