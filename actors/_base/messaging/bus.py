"""The I/O loop of an actor process: its sockets, pending asks, timers, and the incarnations of living peers.

It runs in the process's main thread. Other threads hand work over through a deque and one eventfd, so that one thread
owns the ZeroMQ sockets. Arriving messages go to `deliver`; the bus has no handlers itself.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import zmq

from actors._base import recording
from actors._base.messaging import tracing, waits
from actors._base.messaging.futures import Future
from actors._base.messaging.timers import Timer, TimerHeap
from actors._metrics.agent import LOOP_LATENESS
from proto.agent.actor import SetFaults
from proto.agent.supervisor import EVENTS, Exited, Note, PeerStates, Ready, Started
from proto.common.logs import Limited
from proto.wire import codec
from proto.wire.envelope import MAX_BODY_BYTES, Header, Kind
from proto.wire.errors import (
    ActorDead,
    AskTimeout,
    Failure,
    ProtocolError,
    QueueFull,
    Refused,
    from_failure,
    to_failure,
)
from proto.wire.message import Message, Request, reply_type, type_named

R = TypeVar("R", bound=Message)
log = logging.getLogger(__name__)

QUEUE_PER_PEER = 10_000
"""Messages that wait for one absent peer. Beyond it tells are dropped and asks fail with QueueFull."""
RECONNECT_MS, RECONNECT_MAX_MS = 2, 100
"""A restart takes some 10 ms, so ZeroMQ's default of 100 ms would delay messages for too long."""
COMPLAINTS_S = 30.0
"""Period of the log line with the number of bad frames that were not logged one by one."""
MAX_SUBSCRIPTION_BYTES = 4096
"""Limit of a subscriber's frame; ZeroMQ closes the connection beyond it."""
DRAIN_AT_ONCE = 200
"""Messages read from one socket before the next socket."""


class Delivery(NamedTuple):
    """A decoded message. `reply_to` is the asker's routing identity; None for a tell."""

    message: Message
    header: Header
    reply_to: bytes | None
    size: int
    """Size of the body in bytes."""


class PendingAsk(NamedTuple):
    """An ask without answer yet."""

    future: Future[Any]
    target: str
    answer: type[Message]
    timer: Timer
    request: Message
    digest: int
    """Of the request's body, for the recording."""


def _outcome(handler: Callable[[Any], Message], message: Message) -> Message | Exception:
    """An error here is the asker's: the I/O thread must go on."""
    try:
        return handler(message)
    except Refused as refusal:
        return refusal
    except Exception as error:
        log.exception("cannot answer %s", type(message).__name__)
        return Refused("InternalError", f"cannot answer {type(message).__name__}: {type(error).__name__}: {error}")


class Bus:
    """Peer-to-peer messages of one actor. Call `tell`, `ask`, `answer`, `call_later` and `stop` from any thread."""

    def __init__(self, name: str, incarnation: int, run_dir: str, supervisor_pidfd: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.dropped: Counter[str] = Counter()
        self.deliver: Callable[[Delivery], None] = lambda _: None
        self.on_peer_event: Callable[[Started | Exited], None] = lambda _: None
        self.on_note: Callable[[Note], None] = lambda _: None
        self.on_terminate: Callable[[str], None] = lambda _: self.stop(0)
        self.io_handlers: dict[type[Message], Callable[[Any], Message]] = {}
        """Handlers of requests that the I/O thread answers, also while the mailbox thread hangs. They must be short."""
        self.post: Callable[[Callable[[], None]], None] = lambda _: None
        """Run a function in the mailbox's thread."""
        self.on_faults: Callable[[SetFaults], None] = lambda _: None
        self.tapped = False
        self._topics = 0
        """Number of topics with subscribers on the tap."""
        self._complaints = Limited(log)
        self._run_dir = run_dir
        self.supervisor_pidfd = supervisor_pidfd
        self._alive: dict[str, int] = {}
        self._oldest_valid: dict[str, int] = {}
        self._correlations = itertools.count(1)
        self._pending: dict[int, PendingAsk] = {}
        self._work: deque[Callable[[], object]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self._thread = 0
        """Identity of the loop's thread, while it runs."""
        self._timers = TimerHeap(self._wake_for_timer, lambda late_s: LOOP_LATENESS.observe(late_s, name))
        self._exit_code: int | None = None
        self._watched: dict[int, Callable[[], None]] = {}
        self._open_sockets()

    # Sockets

    def _open_sockets(self) -> None:
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 256)
        self._inbox = self._socket(zmq.ROUTER)
        self._inbox.set(zmq.MAXMSGSIZE, MAX_BODY_BYTES)
        self._inbox.bind(self._address(self.name))
        self._tap = self._socket(zmq.XPUB)
        self._tap.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION_BYTES)
        self._tap.set(zmq.ONLY_FIRST_SUBSCRIBE, 1)
        self._tap.bind(f"ipc://{self._run_dir}/{self.name}.tap")
        self._events = self._socket(zmq.SUB)
        self._events.subscribe(b"")
        self._events.connect(self._address("world"))
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._poller = zmq.Poller()
        self._receivers: dict[Any, Callable[[], None]] = {
            self._inbox: self._receive_inbox,
            self._tap: self._receive_subscriptions,
            self._events: self._receive_events,
            self._wake_fd: self._drain_wake,
            self.supervisor_pidfd: self._supervisor_gone,
        }
        for source in self._receivers:
            self._poller.register(source, zmq.POLLIN)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 50)
        socket.set(zmq.SNDHWM, QUEUE_PER_PEER)
        socket.set(zmq.RCVHWM, QUEUE_PER_PEER)
        socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        return socket

    def _address(self, name: str) -> str:
        return f"ipc://{self._run_dir}/{name}.sock"

    def _peer(self, name: str) -> zmq.Socket[bytes]:
        socket = self._peers.get(name)
        if socket is None:
            socket = self._peers[name] = self._socket(zmq.DEALER)
            socket.connect(self._address("control" if name == "supervisor" else name))
            self._receivers[socket] = lambda: self._receive_answers(socket)
            self._poller.register(socket, zmq.POLLIN)
        return socket

    def end_on(self, *numbers: int) -> None:
        """Call `on_terminate` in the loop after one of these signals. From the main thread.

        The signal only wakes the loop. A Python signal handler would be late when the signal comes just before the loop
        sleeps. Within a delivery it would take the mailbox's lock a second time.
        """
        readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        self._watch(readable, lambda: self.on_terminate(signal.Signals(os.read(readable, 1)[0]).name))

    # From any thread

    def tell(self, target: str, message: Message) -> None:
        """Queue a message; see RemoteRef.tell."""
        trace = tracing.CURRENT.get()
        header = codec.encode_header(Kind.TELL, type(message).__name__, self.name, self.incarnation, trace=trace)
        body = codec.encode(message)
        self._do(lambda: self._send(target, header, body))

    def ask(self, target: str, request: Request[R], timeout_s: float) -> Future[R]:
        """Queue a request; see RemoteRef.ask."""
        future: Future[R] = Future()
        correlation = next(self._correlations)
        name, trace = type(request).__name__, ""
        if (span := tracing.begin(f"{target}/{name}", "client")) is not None:
            trace = span.context
            future.add_done_callback(functools.partial(tracing.end_with, span))
        header = codec.encode_header(Kind.ASK, name, self.name, self.incarnation, correlation, trace)
        body = codec.encode(request)
        answer, digest = reply_type(type(request)), recording.digest(body)
        waiting = waits.begin("ask", f"actor/{target}", name, timeout_s=timeout_s, number=correlation)
        future.on_end(waiting.end)

        def send() -> None:
            timer = self._timers.add(timeout_s, lambda: self._expire(correlation, timeout_s))
            self._pending[correlation] = PendingAsk(future, target, answer, timer, request, digest)
            if not self._send(target, header, body):
                self._fail(
                    correlation, QueueFull(f"cannot ask {target}: {QUEUE_PER_PEER} messages wait for it already")
                )

        self._do(send)
        return future

    def answer(self, delivery: Delivery, result: Message | BaseException) -> None:
        """Send the answer to an ask. An exception, or an answer too large to send, goes as an ERROR."""
        if delivery.reply_to is None:
            return
        try:
            answer = to_failure(result) if isinstance(result, BaseException) else result
            body = codec.encode(answer)
        except ProtocolError as error:
            answer = to_failure(error)
            body = codec.encode(answer)
        kind, type_name = Kind.ERROR if isinstance(answer, Failure) else Kind.REPLY, type(answer).__name__
        header = codec.encode_header(kind, type_name, self.name, self.incarnation, delivery.header.correlation)
        frames = [delivery.reply_to, header, body]
        self._do(lambda: self._inbox.send_multipart(frames, zmq.NOBLOCK))

    def report_ready(self) -> None:
        """Tell the supervisor that this incarnation is ready."""
        self.tell("supervisor", Ready(pid=os.getpid()))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run a callback in the I/O thread in `delay_s` seconds."""
        return self._timers.add(delay_s, callback)

    def watch_fd(self, fd: int, callback: Callable[[], None]) -> None:
        """Call the callback in the I/O thread whenever `fd` is readable (inotify, pidfds)."""
        self._do(lambda: self._watch(fd, callback))

    def unwatch_fd(self, fd: int, then: Callable[[], None] = lambda: None) -> None:
        """Stop watching, then call `then` in the I/O thread. Only there it is safe to close `fd`."""
        self._do(lambda: self._unwatch(fd, then))

    def publish_tap(self, frames: list[bytes]) -> None:
        """Publish one record on the tap."""
        self._do(lambda: self._tap.send_multipart(frames, zmq.NOBLOCK))

    def stop(self, exit_code: int) -> None:
        """End the loop, after work that was queued before."""

        def end() -> None:
            self._exit_code = exit_code

        self._do(end)

    @property
    def pending_asks(self) -> int:
        """The number of asks without answer yet."""
        return len(self._pending)

    @property
    def timer_count(self) -> int:
        """The number of timers."""
        return len(self._timers)

    def _do(self, work: Callable[[], object]) -> None:
        self._work.append(work)
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake_fd, 1)

    def _wake_for_timer(self) -> None:
        if threading.get_ident() != self._thread:  # the loop itself checks its timers before it waits
            self._wake()

    # The loop

    def run(self) -> int:
        """Serve until `stop`; returns its exit code."""
        self._thread = threading.get_ident()
        while self._exit_code is None:
            wait_s = self._timers.run_due()
            timeout_ms = None if wait_s is None else max(0, int(wait_s * 1000) + 1)
            for source, _ in self._poller.poll(timeout_ms):
                receiver = self._receivers.get(source)
                if receiver is not None:
                    receiver()
        for socket in (self._inbox, self._tap, self._events, *self._peers.values()):
            socket.close()
        self._context.term()
        return self._exit_code

    def _drain_wake(self) -> None:
        os.eventfd_read(self._wake_fd)
        self._woken = False  # before draining: work added from here on wakes again
        while self._work:
            self._work.popleft()()

    def _supervisor_gone(self) -> None:
        log.warning("the supervisor has ended: exiting; pods go on")
        self._poller.unregister(self.supervisor_pidfd)
        del self._receivers[self.supervisor_pidfd]
        self.on_terminate("supervisor gone")

    def _watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._receivers[fd] = callback
        self._poller.register(fd, zmq.POLLIN)

    def _unwatch(self, fd: int, then: Callable[[], None]) -> None:
        if self._receivers.pop(fd, None) is not None:
            self._poller.unregister(fd)
        then()

    def _send(self, target: str, header: bytes, body: bytes) -> bool:
        try:
            self._peer(target).send_multipart([header, body], zmq.NOBLOCK)
        except zmq.Again:
            self.dropped["queue_full"] += 1
            return False
        return True

    # Arriving messages

    def _frames(self, socket: zmq.Socket[bytes]) -> list[list[bytes]]:
        taken: list[list[bytes]] = []
        try:
            while len(taken) < DRAIN_AT_ONCE:
                taken.append(socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return taken

    def _drop(self, text: str, *args: object) -> None:
        """Count a message that cannot be decoded, and log it unless too many were logged."""
        self.dropped["undecodable"] += 1
        if self._complaints.log(logging.ERROR, text, *args):
            self.call_later(COMPLAINTS_S, self._complaints.catch_up)

    def _receive_inbox(self) -> None:
        for frames in self._frames(self._inbox):
            try:
                self._take(frames)
            except ProtocolError as error:
                self._drop("cannot decode a message of %d frames: %s", len(frames), error)

    def _take(self, frames: list[bytes]) -> None:
        if len(frames) != 3:
            raise ProtocolError(f"{len(frames)} frames, expected identity, header, body")
        identity, head, body = frames
        header = codec.decode_header(head)
        if header.incarnation < self._oldest_valid.get(header.source, 0):
            self.dropped["dead_incarnation"] += 1
            return
        delivery = Delivery(Message(), header, identity if header.kind == Kind.ASK else None, len(body))
        try:
            message = codec.decode(body, type_named(self.name, header.type))
        except ProtocolError as error:
            self._drop("cannot decode %s from %s: %s", header.type, header.source, error)
            self.answer(delivery, error)
            return
        delivery = delivery._replace(message=message)
        if recording.current is not None:
            recording.current.message(head, body, message)
        handler = self.io_handlers.get(type(message))
        if isinstance(message, SetFaults):
            self.on_faults(message)
        elif handler is None:
            self.deliver(delivery)
        else:
            self.answer(delivery, _outcome(handler, message))

    def _receive_answers(self, socket: zmq.Socket[bytes]) -> None:
        for frames in self._frames(socket):
            try:
                header = codec.decode_header(frames[0])
                pending = self._pending.get(header.correlation)
                if pending is None or header.incarnation < self._oldest_valid.get(pending.target, 0):
                    continue  # too late, or of an incarnation that has ended
                if header.kind == Kind.ERROR:
                    self._fail(header.correlation, from_failure(codec.decode(frames[1], Failure)))
                else:
                    self._succeed(header.correlation, codec.decode(frames[1], pending.answer), frames[1])
            except (ProtocolError, IndexError) as error:
                self._drop("cannot decode an answer: %s", error)

    def _succeed(self, correlation: int, answer: Message, body: bytes) -> None:
        pending = self._pending.pop(correlation)
        pending.timer.cancel()
        if recording.current is not None:
            recording.current.answer(pending.target, pending.request, pending.digest, body)
        pending.future.set(answer)

    def _fail(self, correlation: int, error: Exception) -> None:
        pending = self._pending.pop(correlation, None)
        if pending is not None:
            pending.timer.cancel()
            if recording.current is not None:
                recording.current.failure(pending.target, pending.request, pending.digest, error)
            pending.future.set_error(error)

    def _expire(self, correlation: int, timeout_s: float) -> None:
        pending = self._pending.get(correlation)
        if pending is not None:
            self._fail(correlation, AskTimeout(f"{pending.target} did not answer within {timeout_s:g} s"))

    def _receive_subscriptions(self) -> None:
        """Count topics: a frame announces the first subscriber of a topic or the end of its last one. Other frames are
        counted as undecodable."""
        for change, *_ in self._frames(self._tap):
            if change[:1] not in (b"\x00", b"\x01"):
                self.dropped["undecodable"] += 1
                continue
            self._topics = max(0, self._topics + (1 if change[:1] == b"\x01" else -1))
        self.tapped = self._topics > 0

    def _receive_events(self) -> None:
        for frames in self._frames(self._events):
            try:
                header = codec.decode_header(frames[1])
                event = codec.decode(frames[2], EVENTS[header.type])
            except (ProtocolError, IndexError, KeyError) as error:
                self._drop("cannot decode an event: %s", error)
                continue
            self._learn(event)

    def _learn(self, event: Message) -> None:
        match event:
            case PeerStates():
                for peer in event.peers:
                    if peer.ready:
                        self._peer_started(Started(name=peer.name, incarnation=peer.incarnation))
            case Started():
                self._peer_started(event)
            case Exited():
                self._peer_exited(event)
            case Note():
                self.on_note(event)

    def _peer_started(self, event: Started) -> None:
        if event.name == self.name or self._alive.get(event.name) == event.incarnation:
            return
        if event.incarnation < self._oldest_valid.get(event.name, 0):
            return
        self._alive[event.name] = event.incarnation
        self._oldest_valid[event.name] = event.incarnation
        self._hand_on(event)

    def _peer_exited(self, event: Exited) -> None:
        if event.name == self.name:
            return
        if self._alive.get(event.name) == event.incarnation:
            del self._alive[event.name]
        self._oldest_valid[event.name] = max(self._oldest_valid.get(event.name, 0), event.incarnation + 1)
        dead = [number for number, ask in self._pending.items() if ask.target == event.name]
        for correlation in dead:
            self._fail(correlation, ActorDead(f"{event.name} #{event.incarnation} exited: {event.reason}"))
        self._hand_on(event)

    def _hand_on(self, event: Started | Exited) -> None:
        if recording.current is not None:
            recording.current.peer(event)
        self.on_peer_event(event)
