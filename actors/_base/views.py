"""Answers requests about an actor's inside: its state, mailbox, stacks and memory, and the value of an expression.

The I/O thread answers all but the last. It does not wait for the mailbox thread, so that a hung actor answers, too. An
expression runs in the mailbox thread, as a handler does.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from actors._base import heap, inspection, profile
from actors._base.messaging.bus import Delivery
from actors._base.messaging.mailbox import Call, MailboxActor
from proto.agent.actor import (
    Dump,
    Dumped,
    Evaluated,
    GetMemory,
    Inspect,
    Inspected,
    ListMailbox,
    MailboxContent,
    MemoryUse,
    Stacks,
    StackTraces,
    WaitingMessage,
)
from proto.common.safe_text import one_line
from proto.wire.errors import Refused
from proto.wire.message import Message

MOST_LISTED = 100
MOST_COUNTED = 10_000
MOST_TEXT = 64 * 1024


def dump(actor: MailboxActor, _: Dump) -> Dumped:
    """The message in its handler, and the names of the first that wait."""
    busy = actor.in_flight
    head = tuple(_waiting(item, 0.0).type for item in actor.mailbox_head(20))
    if busy is None:
        return Dumped(mailbox_head=head)
    return Dumped(in_flight=busy[0], in_flight_s=time.monotonic() - busy[1], mailbox_head=head)


def mailbox(actor: MailboxActor, _: ListMailbox) -> MailboxContent:
    """The mailbox, with senders and waiting times."""
    now = time.monotonic()
    busy = actor.in_flight
    waiting = [_waiting(item, now) for item in actor.mailbox_head(MOST_COUNTED)]
    return MailboxContent(
        in_flight=busy[0] if busy is not None else "",
        in_flight_ms=round((now - busy[1]) * 1000, 3) if busy is not None else 0.0,
        depth=actor.mailbox_depth(),
        head=tuple(itertools.islice(waiting, MOST_LISTED)),
        counts=dict(Counter(one.type for one in waiting).most_common(MOST_LISTED)),
    )


def _waiting(item: Any, now: float) -> WaitingMessage:
    message = getattr(item, "message", item)
    if not isinstance(message, Call):
        return WaitingMessage(type=type(message).__name__)
    delivery = message.args[0] if message.args else None
    if not isinstance(delivery, Delivery):
        return WaitingMessage(type=message.name)
    header = delivery.header
    waited_ms = max(0.0, round((now - header.sent_ns / 1e9) * 1000, 3))
    return WaitingMessage(type=header.type, source=header.source, waited_ms=waited_ms, bytes=delivery.size)


def state(actor: MailboxActor, request: Inspect) -> Inspected:
    """A part of the actor's state. Refuses an unknown path."""
    try:
        return Inspected(value=inspection.inspect(actor, request.path, request.depth))
    except inspection.NoSuchPath as error:
        raise Refused("NoSuchPath", f"cannot show {request.path!r}: {error}", retry=False) from error
    except RuntimeError as error:  # a container that grew while it was read
        raise Refused("Changed", f"cannot show {request.path!r}: it changes just now: {error}; try again") from error


def stacks(_: MailboxActor, __: Stacks) -> StackTraces:
    """The present stack of every thread."""
    return StackTraces(text=profile.stacks())


def memory(_: MailboxActor, __: GetMemory) -> MemoryUse:
    """The process's objects by type."""
    return heap.use()


def evaluate(actor: MailboxActor, expression: str) -> Evaluated:
    """The value of an expression. Its exception is part of the answer and ends nothing."""
    try:
        value = eval(compile(expression, "<console>", "eval"), {"actor": actor})
        return Evaluated(text=repr(value)[:MOST_TEXT])
    except BaseException as error:
        return Evaluated(text="", error=one_line(f"{type(error).__name__}: {error}")[:MOST_TEXT])


IO_VIEWS: dict[type[Message], Callable[[Any, Any], Message]] = {
    Dump: dump,
    GetMemory: memory,
    Inspect: state,
    ListMailbox: mailbox,
    Stacks: stacks,
}
"""Handlers by request, in the I/O thread; the first argument is the actor."""
