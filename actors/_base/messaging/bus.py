"""The messages of an actor process: its sockets, pending asks, and the incarnations of living peers.

Its loop (`loop`) receives. Each thread sends its messages itself (`shared_socket`). Arriving messages go
to `deliver`; the bus has no handlers itself.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import zmq

from actors._base import recording
from actors._base.messaging import tracing, waits
from actors._base.messaging.futures import Future
from actors._base.messaging.loop import Loop
from actors._base.messaging.mailbox import Inbox
from actors._base.messaging.receipts import CHECK_S, CHECK_TIMEOUT_S, Received, Sent
from actors._base.messaging.shared_socket import SharedSocket
from actors._base.messaging.timers import Timer
from actors._metrics.agent import LOOP_LATENESS
from proto.agent.actor import CheckReceived, Receipt, SetFaults
from proto.agent.supervisor import EVENTS, Exited, Note, PeerStates, Ready, Started, Suspect, TellsLost
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
PeerEvent: TypeAlias = Started | Exited | TellsLost
log = logging.getLogger(__name__)

QUEUE_PER_PEER = 10_000
"""Messages that wait for one absent peer. Beyond it tells are dropped and asks fail with QueueFull."""
RECONNECT_MS, RECONNECT_MAX_MS = 2, 100
"""A restart takes some 10 ms, so ZeroMQ's default of 100 ms would delay messages for too long."""
SUSPECT_S = 2.0
"""An ask that waited for so long in vain is reported. An asker with a shorter deadline expects that it may fail."""
COMPLAINTS_S = 30.0
"""Period of the log line with the number of bad frames that were not logged one by one."""
MAX_SUBSCRIPTION_BYTES = 4096
"""Limit of a subscriber's frame; ZeroMQ closes the connection beyond it."""
MOST_TOPICS = 64
"""Topics of a tap that each message's type is compared with; with more, all messages are published."""
NOT_RECORDED = -1
DRAIN_AT_ONCE = 200
"""Messages read from one socket before the next socket."""


class Delivery(NamedTuple):
    """A decoded message. `reply_to` is the asker's routing identity; None for a tell."""

    message: Message
    header: Header
    reply_to: bytes | None
    size: int
    """Size of the body in bytes."""


@dataclass(slots=True)
class PendingAsk:
    """An ask without answer yet."""

    future: Future[Any]
    target: str
    answer: type[Message]
    request: Message
    digest: int
    """Of the request's body, for the recording, or NOT_RECORDED."""
    since: float = field(default_factory=time.monotonic)
    timer: Timer | None = None

    def end(self) -> None:
        """Stop its timer."""
        if self.timer is not None:
            self.timer.cancel()


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
        self.on_peer_event: Callable[[PeerEvent], None] = lambda _: None
        self.on_note: Callable[[Note], None] = lambda _: None
        self.on_terminate: Callable[[str], None] = lambda _: self.stop(0)
        self.io_handlers: dict[type[Message], Callable[[Any], Message]] = {}
        """Handlers of requests that the I/O thread answers, also while the mailbox thread hangs. They must be short."""
        self.post: Callable[[Callable[[], None]], None] = lambda _: None
        """Run a function in the mailbox's thread."""
        self.on_faults: Callable[[SetFaults], None] = lambda _: None
        self._topics: set[bytes] = set()
        """Topics with subscribers on the tap; the loop's own."""
        self._tapped: tuple[bytes, ...] = ()
        """The same for all threads; the empty topic, which is every type's, in the place of very many."""
        self._complaints = Limited(log)
        self._run_dir = run_dir
        self.supervisor_pidfd = supervisor_pidfd
        self._alive: dict[str, int] = {}
        self._oldest_valid: dict[str, int] = {}
        self._sent: dict[str, Sent] = {}
        self._received = Received()
        self._correlations = itertools.count(1)
        self._pending: dict[int, PendingAsk] = {}
        self.loop = Loop(lambda late_s: LOOP_LATENESS.observe(late_s, name))
        self._exit_code = 0
        self.loop.watch(supervisor_pidfd, self._supervisor_gone)
        self.loop.tidy = self._cancel_checks
        self._opening = threading.Lock()
        self._closed = False
        self._open_sockets()

    # Sockets

    def _open_sockets(self) -> None:
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 256)
        inbox = self._socket(zmq.ROUTER)
        inbox.set(zmq.MAXMSGSIZE, MAX_BODY_BYTES)
        inbox.bind(self._address(self.name))
        self._inbox = self._shared(inbox, self._receive_inbox)
        tap = self._socket(zmq.XPUB)
        tap.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION_BYTES)
        tap.set(zmq.ONLY_FIRST_SUBSCRIBE, 1)
        tap.bind(f"ipc://{self._run_dir}/{self.name}.tap")
        self._tap = self._shared(tap, self._receive_subscriptions)
        events = self._socket(zmq.SUB)
        events.subscribe(b"")
        events.connect(self._address("world"))
        self._events = self._shared(events, self._receive_events)
        self._peers: dict[str, SharedSocket] = {}

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set(zmq.LINGER, 50)
        socket.set(zmq.SNDHWM, QUEUE_PER_PEER)
        socket.set(zmq.RCVHWM, QUEUE_PER_PEER)
        socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        return socket

    def _shared(self, socket: zmq.Socket[bytes], receive: Callable[[list[list[bytes]]], None]) -> SharedSocket:
        """Let the loop receive from a socket, and any thread send on it."""

        def take() -> None:
            receive(shared.receive(DRAIN_AT_ONCE))

        shared = SharedSocket(socket, lambda: self.loop.do(take), self.loop.looks_later)
        self.loop.watch(shared.fd, take, reads_all=True)
        return shared

    def _address(self, name: str) -> str:
        return f"ipc://{self._run_dir}/{name}.sock"

    def _peer(self, name: str) -> SharedSocket | None:
        """The connection to a peer; None when the process ends."""
        peer = self._peers.get(name)
        if peer is not None:
            return peer
        with self._opening:
            if name not in self._peers and not self._closed:
                socket = self._socket(zmq.DEALER)
                socket.connect(self._address("control" if name == "supervisor" else name))
                self._peers[name] = self._shared(socket, self._receive_answers)
            return self._peers.get(name)

    def end_on(self, *numbers: int) -> None:
        """Call `on_terminate` in the loop after one of these signals. From the main thread.

        The signal only wakes the loop. A Python signal handler would be late when the signal comes just before the loop
        sleeps. Within a delivery it would take the mailbox's lock a second time.
        """
        readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        self.loop.watch(readable, lambda: self.on_terminate(signal.Signals(os.read(readable, 1)[0]).name))

    # From any thread

    def tell(self, target: str, message: Message) -> None:
        """Queue a message; see RemoteRef.tell."""
        name, trace, body = type(message).__name__, tracing.CURRENT.get(), codec.encode(message)
        sent = self._sent_to(target)
        with sent.lock:
            incarnation = self._alive.get(target, 0)
            header = codec.encode_header(Kind.TELL, name, self.name, self.incarnation, incarnation, trace)
            check = sent.add(incarnation, tells=1)
            self._send(target, header, body)
            if check:
                self._plan_check(target, sent)

    def ask(self, target: str, request: Request[R], timeout_s: float) -> Future[R]:
        """Queue a request; see RemoteRef.ask."""
        future: Future[R] = Future()
        correlation = next(self._correlations)
        name, trace = type(request).__name__, ""
        if (span := tracing.begin(f"{target}/{name}", "client")) is not None:
            trace = span.context
            future.add_done_callback(functools.partial(tracing.end_with, span))
        body = codec.encode(request)
        waiting = waits.begin("ask", f"actor/{target}", name, timeout_s=timeout_s, number=correlation)
        future.on_end(waiting.end)
        pending = PendingAsk(future, target, reply_type(type(request)), request, recording.digest(body))
        sent = self._sent_to(target)
        with sent.lock:
            incarnation = self._alive.get(target, 0)
            check = sent.add(incarnation, tells=0)
            queued = self._request(correlation, pending, body, timeout_s, trace)
            if check:
                self._plan_check(target, sent)
        if not queued:
            self._fail(correlation, QueueFull(f"cannot ask {target}: {QUEUE_PER_PEER} messages wait for it already"))
        return future

    def _request(self, number: int, pending: PendingAsk, body: bytes, timeout_s: float, trace: str = "") -> bool:
        header = codec.encode_header(
            Kind.ASK, type(pending.request).__name__, self.name, self.incarnation, number, trace
        )
        self._pending[number] = pending
        pending.timer = self.loop.timers.add(timeout_s, lambda: self._expire(number, timeout_s))
        return self._send(pending.target, header, body)

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
        self._inbox.send(delivery.reply_to, header, body)
        self._received.answered(delivery.header)  # after the send: a check's answer must not overtake it

    def report_ready(self) -> None:
        """Tell the supervisor that this incarnation is ready."""
        self.tell("supervisor", Ready(pid=os.getpid()))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run a callback in the I/O thread in `delay_s` seconds."""
        return self.loop.timers.add(delay_s, callback)

    def watch_fd(self, fd: int, callback: Callable[[], None]) -> None:
        """Call the callback in the I/O thread whenever `fd` is readable (inotify, pidfds)."""
        self.loop.do(lambda: self.loop.watch(fd, callback))

    def unwatch_fd(self, fd: int, then: Callable[[], None] = lambda: None) -> None:
        """Stop watching, then call `then` in the I/O thread. Only there it is safe to close `fd`."""

        def end() -> None:
            self.loop.unwatch(fd)
            then()

        self.loop.do(end)

    def is_tapped(self, type_name: str) -> bool:
        """True when the tap has a subscriber for messages of this type. A topic is the beginning of a type's name."""
        tapped = self._tapped
        return bool(tapped) and type_name.encode().startswith(tapped)

    def publish_tap(self, frames: list[bytes]) -> None:
        """Publish one record on the tap."""
        self._tap.send(*frames)

    def stop(self, exit_code: int) -> None:
        """End the loop, after work that was queued before."""

        def end() -> None:
            self._exit_code, self.loop.ended = exit_code, True

        self.loop.do(end)

    @property
    def pending_asks(self) -> int:
        """The number of asks without answer yet."""
        return len(self._pending)

    @property
    def timer_count(self) -> int:
        """The number of timers."""
        return len(self.loop.timers)

    # The loop

    def attach(self, inbox: Inbox) -> None:
        """Let the mailbox's thread wait at the loop, and lead it."""
        inbox.attach(self.loop)

    def run(self) -> int:
        """Serve until `stop`; returns its exit code. In the main thread."""
        self.loop.run()
        with self._opening:
            self._closed = True
            for socket in (self._inbox, self._tap, self._events, *self._peers.values()):
                socket.close()
        self._context.term()
        return self._exit_code

    def _supervisor_gone(self) -> None:
        log.warning("the supervisor has ended: exiting; pods go on")
        self.loop.unwatch(self.supervisor_pidfd)
        self.on_terminate("supervisor gone")

    def _send(self, target: str, header: bytes, body: bytes) -> bool:
        peer = self._peer(target)
        if peer is None or peer.send(header, body):
            return True
        self.dropped["queue_full"] += 1
        return False

    # Lost messages

    def drop_early(self, delivery: Delivery) -> None:
        """Count a message that the actor could not keep until it is ready. In the mailbox's thread."""
        self.dropped["too_early"] += 1
        self._received.dropped(delivery.header, self.incarnation)

    def _sent_to(self, target: str) -> Sent:
        return self._sent.get(target) or self._sent.setdefault(target, Sent())

    def _waiting_for(self, target: str) -> dict[int, PendingAsk]:
        """The actor's asks of a peer by number."""
        asks = self._pending.copy()  # other threads add to it
        return {number: one for number, one in asks.items() if one.target == target and one.digest != NOT_RECORDED}

    def _plan_check(self, target: str, sent: Sent) -> None:
        """Plan the one next check. With the lock held."""
        number = sent.next_plan()
        sent.timer = self.loop.timers.add(CHECK_S, lambda: self._check(target, sent, number))

    def _cancel_checks(self) -> None:
        """Cancel checks of peers that have answered everything, before their timers wake this process."""
        if self._pending:
            return
        for sent in list(self._sent.values()):
            with sent.lock:
                if not self._pending:  # an ask of another thread counts on the planned check
                    sent.cancel_check()

    def _check(self, target: str, sent: Sent, plan: int) -> None:
        """Ask the peer what has arrived. Not an ask of the actor: it is neither recorded nor shown as a wait."""
        with sent.lock:
            incarnation = sent.incarnation
            if not sent.begins(plan) or incarnation != self._alive.get(target):
                return
            waiting, count, now = self._waiting_for(target), sent.count, time.monotonic()
            old = tuple(number for number, one in waiting.items() if now - one.since >= CHECK_S / 2)
            check = bool(old) or sent.has_unchecked
            if check:
                # Not Future[Receipt](): typing would make and keep this type in each process.
                answer: Future[Receipt] = Future()
                request, number = CheckReceived(asks=old), next(self._correlations)
                pending = PendingAsk(answer, target, Receipt, request, NOT_RECORDED)
                self._request(number, pending, codec.encode(request), CHECK_TIMEOUT_S)
            else:
                sent.settle(count, count, asks=bool(waiting))
                if waiting:
                    self._plan_check(target, sent)
        if check:
            answer.add_done_callback(lambda done: self._compare(target, sent, incarnation, count, done))

    def _compare(self, target: str, sent: Sent, incarnation: int, count: int, answer: Future[Receipt]) -> None:
        try:
            receipt = answer.result(0)
        except AskTimeout:
            self._unanswered(target, sent, incarnation)
            return
        except (ActorDead, ProtocolError):  # a new incarnation gets all state; one of an older release cannot tell
            return
        for number in receipt.unknown_asks:
            if (ask := self._pending.get(number)) is not None:
                self.dropped["lost"] += 1
                name = type(ask.request).__name__
                self._fail(number, AskTimeout(f"{target} has no {name} from here: it or its answer was lost"))
        with sent.lock:
            if incarnation != sent.incarnation:
                return
            lost, again = sent.settle(count, receipt.tells, asks=bool(self._waiting_for(target)))
            if again:
                self._plan_check(target, sent)
        if lost:
            self.dropped["lost"] += lost
            log.warning("%s has not received %d messages from here: sending it all state again", target, lost)
            self._hand_on(TellsLost(name=target, incarnation=incarnation))

    def _unanswered(self, target: str, sent: Sent, incarnation: int) -> None:
        """Suspect a peer that has left two checks unanswered: the supervisor may take it for idle."""
        with sent.lock:
            if incarnation != sent.incarnation:
                return
            sent.unanswered += 1
            suspect = sent.unanswered > 1
            self._plan_check(target, sent)
        if suspect:
            self._suspect(target)

    # Arriving messages

    def _drop(self, text: str, *args: object) -> None:
        """Count a message that cannot be decoded, and log it unless too many were logged."""
        self.dropped["undecodable"] += 1
        if self._complaints.log(logging.ERROR, text, *args):
            self.call_later(COMPLAINTS_S, self._complaints.catch_up)

    def _receive_inbox(self, messages: list[list[bytes]]) -> None:
        for frames in messages:
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
        self._received.add(header, self.incarnation)
        try:
            message = codec.decode(body, type_named(self.name, header.type))
        except ProtocolError as error:
            self._drop("cannot decode %s from %s: %s", header.type, header.source, error)
            self.answer(delivery, error)
            return
        delivery = delivery._replace(message=message)
        if isinstance(message, CheckReceived):
            unknown = self._received.unknown(header, message.asks)
            self.answer(delivery, Receipt(tells=self._received.tells(header), unknown_asks=unknown))
            return
        if (recorder := recording.current) is not None:
            recorder.message(head, body, message)
        handler = self.io_handlers.get(type(message))
        if isinstance(message, SetFaults):
            self.on_faults(message)
        elif handler is None:
            self.deliver(delivery)
        else:
            self.answer(delivery, _outcome(handler, message))

    def _receive_answers(self, messages: list[list[bytes]]) -> None:
        for frames in messages:
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
        pending.end()
        if (recorder := recording.current) is not None and pending.digest != NOT_RECORDED:
            recorder.answer(pending.target, pending.request, pending.digest, body)
        pending.future.set(answer)

    def _fail(self, correlation: int, error: Exception) -> None:
        pending = self._pending.pop(correlation, None)
        if pending is not None:
            pending.end()
            if (recorder := recording.current) is not None and pending.digest != NOT_RECORDED:
                recorder.failure(pending.target, pending.request, pending.digest, error)
            pending.future.set_error(error)

    def _expire(self, correlation: int, timeout_s: float) -> None:
        pending = self._pending.get(correlation)
        if pending is None:
            return
        self._fail(correlation, AskTimeout(f"{pending.target} did not answer within {timeout_s:g} s"))
        if timeout_s >= SUSPECT_S:
            self._suspect(pending.target)

    def _suspect(self, target: str) -> None:
        """Have the supervisor ping a peer that does not answer."""
        if (incarnation := self._alive.get(target)) is not None:
            self.tell("supervisor", Suspect(name=target, incarnation=incarnation))

    def _receive_subscriptions(self, messages: list[list[bytes]]) -> None:
        """Keep the topics: a frame announces the first subscriber of a topic or the end of its last one. Other frames
        are counted as undecodable."""
        for change, *_ in messages:
            match change[:1]:
                case b"\x01":
                    self._topics.add(change[1:])
                case b"\x00":
                    self._topics.discard(change[1:])
                case _:
                    self.dropped["undecodable"] += 1
        self._tapped = tuple(self._topics) if len(self._topics) <= MOST_TOPICS else (b"",)

    def _receive_events(self, messages: list[list[bytes]]) -> None:
        for frames in messages:
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
                self._learn_states(event)
            case Started():
                self._peer_started(event)
            case Exited():
                self._peer_exited(event)
            case Note():
                self.on_note(event)

    def _learn_states(self, event: PeerStates) -> None:
        """Learn what events that were missed would have told.

        Snapshots and events come in one order, and a snapshot is the sum of all events before it.
        """
        ready = {peer.name: peer.incarnation for peer in event.peers if peer.ready}
        for name, incarnation in list(self._alive.items()):
            if ready.get(name) != incarnation:
                self._missed_exit(name, incarnation)
        for name, incarnation in ready.items():
            self._peer_started(Started(name=name, incarnation=incarnation))

    def _missed_exit(self, name: str, incarnation: int) -> None:
        """End an incarnation whose Exited was missed: its asks would wait for their deadlines, of an hour for some."""
        self._peer_exited(Exited(name=name, incarnation=incarnation, reason="its end was noticed late"))

    def _peer_started(self, event: Started) -> None:
        if event.name == self.name or self._alive.get(event.name) == event.incarnation:
            return
        if event.incarnation < self._oldest_valid.get(event.name, 0):
            return
        if (former := self._alive.get(event.name)) is not None:
            self._missed_exit(event.name, former)
        self._alive[event.name] = event.incarnation
        self._oldest_valid[event.name] = event.incarnation
        self._hand_on(event)

    def _peer_exited(self, event: Exited) -> None:
        if event.name == self.name or event.incarnation < self._oldest_valid.get(event.name, 0):
            return
        if self._alive.get(event.name) == event.incarnation:
            del self._alive[event.name]
        self._oldest_valid[event.name] = max(self._oldest_valid.get(event.name, 0), event.incarnation + 1)
        asks = self._pending.copy()  # other threads add to it
        dead = [number for number, ask in asks.items() if ask.target == event.name]
        for correlation in dead:
            self._fail(correlation, ActorDead(f"{event.name} #{event.incarnation} exited: {event.reason}"))
        self._hand_on(event)

    def _hand_on(self, event: PeerEvent) -> None:
        if (recorder := recording.current) is not None:
            recorder.peer(event)
        self.on_peer_event(event)
