"""The bus of a replayed actor: no sockets. Asks wait for their recorded answers, and tells go nowhere."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from actors._base.messaging.bus import Bus, Delivery
from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import Inbox
from actors._base.messaging.timers import Timer
from actors._replay.clock import Clock
from actors._replay.script import Calls
from proto.wire import codec, errors
from proto.wire.errors import AskTimeout, Refused
from proto.wire.message import Message, Request, reply_type

R = TypeVar("R", bound=Message)


class ReplayBus(Bus):
    """In the place of a process's bus; for one thread."""

    def __init__(self, name: str, incarnation: int, clock: Clock, calls: Calls) -> None:  # the base would open sockets
        self.name, self.incarnation = name, incarnation
        self.dropped = Counter()
        self.told: Counter[str] = Counter()
        """Messages told, by target and type."""
        self.stopped = False
        self._clock, self._calls = clock, calls
        self.supervisor_pidfd = -1

    def attach(self, inbox: Inbox) -> None:
        """Do nothing: a replay has one thread."""

    def tell(self, target: str, message: Message) -> None:
        """Count it."""
        self.told[f"{target} {type(message).__name__}"] += 1

    def ask(self, target: str, request: Request[R], timeout_s: float) -> Future[R]:
        """Return a future of the recorded answer."""
        future: Future[R] = Future()
        kind = type(request)
        complete = functools.partial(_complete, future, reply_type(kind))
        self._calls.made(("ask", target, kind.__name__), zlib.crc32(codec.encode(request)), complete)
        text = f"{target} did not answer within {timeout_s:g} s"
        self._clock.timers.add(timeout_s, lambda: future.set_error(AskTimeout(text)))
        return future

    def drop_early(self, delivery: Delivery) -> None:  # noqa: ARG002 - the bus's
        """Count it."""
        self.dropped["too_early"] += 1

    def answer(self, delivery: Delivery, result: Message | BaseException) -> None:
        """Drop the answer: there is no asker."""

    def report_ready(self) -> None:
        """Do nothing: there is no supervisor."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call in virtual time."""
        return self._clock.timers.add(delay_s, callback)

    def watch_fd(self, fd: int, callback: Callable[[], None]) -> None:
        """Do nothing: input of descriptors is not recorded."""

    def unwatch_fd(self, fd: int, then: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002 - the bus's
        """Call `then`."""
        then()

    def is_tapped(self, type_name: str) -> bool:  # noqa: ARG002 - the bus's
        """False: a replay has no tap."""
        return False

    def publish_tap(self, frames: list[bytes]) -> None:
        """Drop it."""

    def stop(self, exit_code: int) -> None:  # noqa: ARG002 - the bus's
        """End the replay."""
        self.stopped = True

    @property
    def pending_asks(self) -> int:
        """Not counted here."""
        return 0

    @property
    def timer_count(self) -> int:
        """The number of timers."""
        return len(self._clock.timers)


def _complete(future: Future[Any], kind: type[Message], outcome: tuple[Any, bytes | None]) -> None:
    error, body = outcome
    if error is not None:
        future.set_error(_exception(*error))
    elif body is None:
        future.set_error(Refused("NotRecorded", "the answer is not in the recording"))
    else:
        future.set(codec.decode(body, kind))


def _exception(name: str, reason: str, text: str, retry: bool) -> Exception:
    if name == "Refused":
        return Refused(reason, text, retry=retry)
    kind = getattr(errors, name, None)
    return kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else errors.ActorError(text)
