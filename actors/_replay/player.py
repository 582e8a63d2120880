"""Plays one recording to an actor: starts it in the sandbox, takes the steps, and tells how it ended.

Everything runs in one thread: mailboxes, coroutines, timers, blocking work. So a debugger sees all of it.
"""

from __future__ import annotations

import builtins
import importlib
import logging
import random
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from actors._base.actor import Actor, ActorContext
from actors._base.messaging.bus import Delivery
from actors._base.messaging.futures import Future
from actors._base.process.child import actor_class
from actors._base.process.thread_pool import PooledActor
from actors._base.recording import described
from actors._base.redaction import is_recorded
from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors._host.files import checkpoint
from actors._replay.bus import ReplayBus
from actors._replay.clock import Clock
from actors._replay.sandbox import Sandbox
from actors._replay.script import Calls, Crash, ScriptError, crash_of, steps
from proto.agent.recording import Frame, Kind, Recording
from proto.agent.settings import Settings
from proto.agent.supervisor import EVENTS, TellsLost
from proto.common import untrusted
from proto.wire import codec, envelope, errors
from proto.wire.errors import AskTimeout, ProtocolError
from proto.wire.message import type_named

PEER_EVENTS = EVENTS | {TellsLost.__name__: TellsLost}


class InlineThreads:
    """In the place of all threads: jobs run in the order of their submission."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, job: Callable[[], None]) -> None:
        """Run it in `Player.settle`."""
        self.jobs.append(job)


class Player:
    """One replay; only one in a process, whose time, threads and CRI client it replaces."""

    def __init__(self, recording: Recording, sandbox: Sandbox) -> None:
        self.recording = recording
        self.expected = crash_of(recording)
        self.error: BaseException | None = None
        """The exception that ended the actor."""
        self.played: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        """Parts that the recording lacks."""
        self.sandbox = sandbox
        self.calls = Calls()
        self.clock = Clock(recording.started_ns, recording.started_at)
        self.bus = ReplayBus(recording.actor, recording.incarnation, self.clock, self.calls)
        self._threads = InlineThreads()
        self._checkpoints: dict[str, list[bytes | None]] = {}

    @property
    def crash(self) -> Crash | None:
        """The end of the actor here."""
        return Crash(*described(self.error)) if self.error is not None else None

    @property
    def reproduced(self) -> bool:
        """True when the actor ended as recorded."""
        return self.crash == self.expected

    def play(self) -> None:
        """Start the actor and take every step, until it ends."""
        context = ActorContext(settings=self._prepare(), bus=self.bus)
        try:
            self._inline(actor_class(self.recording.actor)).start(context)
        except Exception as error:
            self.error = error
            return
        self.settle()
        for frame in steps(self.recording):
            if self.bus.stopped or not self.clock.advance(frame.time_ns, self.settle):
                return
            self._take(frame)
            if not self.settle():
                return

    def settle(self) -> bool:
        """Run everything that is ready; False once the actor has ended."""
        while self.error is None and (self._threads.jobs or self.calls.due):
            (self._threads.jobs or self.calls.due).popleft()()
        return self.error is None

    # The process around the actor

    def _prepare(self) -> Settings:
        frames = self.recording.frames
        try:
            begin = next(frame.payload for frame in frames if frame.kind is Kind.START)
            settings, seed = self.sandbox.inside(untrusted.decode_json(begin["settings"], Settings)), int(begin["seed"])
            for path, data in (frame.payload for frame in frames if frame.kind is Kind.CHECKPOINT):
                self._checkpoints.setdefault(path, []).append(data)
        except (ValueError, TypeError, KeyError) as error:
            raise ScriptError(f"its start cannot be used: {error}") from error
        importlib.import_module(f"actors.{self.recording.actor}.actor")
        PooledActor._pool = self._threads  # type: ignore[assignment]
        logging.getLogger("pykka").setLevel(logging.CRITICAL)  # the report shows the exception
        Cri._start = self._start_call  # type: ignore[assignment,method-assign]
        checkpoint.load = checkpoint.read = self._load
        self.sandbox.close()
        self.clock.install()
        random.seed(seed)
        return settings

    def _inline(self, kind: type[Actor]) -> type[Actor]:
        """The actor's class without a thread of its own."""
        player = self

        def crash(_: Actor, error: BaseException) -> None:
            player.error = player.error or error
            raise error

        def blocking(_: Actor, timeout_s: float, function: Callable[..., Any], *args: Any) -> Future[Any]:
            return player._blocking(timeout_s, function, args)

        return type(kind.__name__, (kind, PooledActor), {"crash": crash, "blocking": blocking})

    def _load(self, path: Any, version: int, *, secret: bool = False) -> Any | None:  # noqa: ARG002
        """In the place of checkpoint.load and checkpoint.read."""
        known = self._checkpoints.get(self.sandbox.original(str(path)))
        if known is None:
            self.missing[f"checkpoint {self.sandbox.original(str(path))}"] += 1
            return None
        data = known.pop(0) if len(known) > 1 else known[0]
        return None if data is None else untrusted.decode_json(data)

    def _start_call(self, rpc: str, request: bytes, deadline: float) -> Future[bytes]:
        future: Future[bytes] = Future()

        def complete(outcome: tuple[Any, bytes | None]) -> None:
            error, response = outcome
            if error is not None:
                code, details = error
                future.set_error(CriError.of(code, details, rpc))
            elif response is None:
                future.set_error(CriError.of("Unavailable", "the answer is not in the recording", rpc))
            else:
                future.set(response)

        self.calls.made(("cri", rpc), zlib.crc32(request), complete)
        late = CriError.of("DeadlineExceeded", "context deadline exceeded", rpc)
        self.clock.timers.add(deadline, lambda: future.set_error(late))
        return future

    def _blocking(self, timeout_s: float, function: Callable[..., Any], args: tuple[Any, ...]) -> Future[Any]:
        future: Future[Any] = Future()
        name = getattr(function, "__name__", "call")

        def complete(outcome: tuple[Any, bool, Any]) -> None:
            error, known, value = outcome
            if error is not None:
                future.set_error(_raised(*error))
                return
            try:
                found = function(*args)
            except Exception as wrong:
                if not known:
                    self.missing[f"result of {name}: {wrong}"] += 1
                    future.set_error(wrong)
                    return
                found = value
            future.set(value if known else found)

        self.calls.made(("blocking", name), 0, complete)
        self.clock.timers.add(
            timeout_s, lambda: future.set_error(AskTimeout(f"{name} did not return within {timeout_s:g} s"))
        )
        return future

    # Steps

    def _take(self, frame: Frame) -> None:
        try:
            self._take_one(frame.kind, frame.payload)
        except (ProtocolError, ScriptError, ValueError, TypeError, KeyError, IndexError) as error:
            self.missing[f"{frame.kind.name}: {error}"] += 1
        else:
            self.played[frame.kind.name] += 1

    def _take_one(self, kind: Kind, payload: Any) -> None:
        match kind:
            case Kind.MESSAGE:
                self._deliver(*payload)
            case Kind.PEER:
                name, body = payload
                self.bus.on_peer_event(codec.decode(body, PEER_EVENTS[name]))  # type: ignore[arg-type]
            case Kind.ANSWER:
                target, request, digest, error, body = payload
                self.calls.ended(("ask", target, request), digest, (error, body))
            case Kind.CRI:
                rpc, digest, error, response = payload
                self.calls.ended(("cri", rpc), digest, (error, response))
            case Kind.BLOCKING:
                name, error, known, value = payload
                self.calls.ended(("blocking", name), 0, (error, known, value))

    def _deliver(self, head: bytes, body: bytes | None) -> None:
        header = codec.decode_header(head)
        kind = type_named(self.recording.actor, header.type)
        if not is_recorded(kind):  # a forged recording: such a message would run code here, or change this process
            raise ScriptError(f"a replay refuses {header.type}: it is not of the manager")
        if body is None:
            self.missing[f"content of {header.type} from {header.source}"] += 1
            return
        message = codec.decode(body, kind)
        reply_to = b"replay" if header.kind == envelope.Kind.ASK else None
        header = msgspec.structs.replace(header, sent_ns=time.monotonic_ns())
        self.bus.deliver(Delivery(message, header, reply_to, len(body)))


def _raised(name: str, number: int | None, text: str) -> Exception:
    """The recorded exception of blocking work, or a RuntimeError for a class that is not found by its name."""
    if number is not None:
        return OSError(number, text)
    kind = getattr(builtins, name, None) or getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not errors.Refused:
        return kind(text)
    return RuntimeError(f"{name}: {text}")
