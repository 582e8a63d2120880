"""Messages every actor receives, whatever it manages. All of them may be repeated without harm."""

from __future__ import annotations

from typing import Any

from proto.wire.message import Done, Message, Record, Request


class Pong(Message, frozen=True, kw_only=True):
    """Answer to Ping, given from the actor's own mailbox thread: proof that handlers run."""

    mailbox: int
    """Messages waiting in the mailbox at that moment."""


class Ping(Request[Pong], frozen=True, kw_only=True):
    """The watchdog's question. A repeat is harmless."""


class Counter(Record, frozen=True, kw_only=True):
    """What happened to one message type since the actor started."""

    type: str
    handled: int
    failed: int = 0
    total_ms: float = 0.0
    """Handling time, summed."""
    max_ms: float = 0.0


class Description(Message, frozen=True, kw_only=True):
    """What an actor says of itself to a console."""

    name: str
    pid: int
    incarnation: int
    uptime_s: float
    mailbox: int
    tasks: int
    """Coroutines started and not yet finished."""
    timers: int
    pending_asks: int
    dropped: dict[str, int] = {}
    """Messages not handled, by cause: undecodable, unknown_type, dead_incarnation, queue_full."""
    messages: tuple[Counter, ...] = ()
    state: dict[str, Any] = {}
    """The manager's own view, as its `describe()` gives it. Never secrets."""


class Describe(Request[Description], frozen=True, kw_only=True):
    """Ask an actor what it is doing. A repeat is harmless."""


class Stop(Message, frozen=True, kw_only=True):
    """Finish the handler at hand, run `on_stop`, exit 0. From the supervisor only. A repeat is harmless."""


class SetVerbosity(Request[Done], frozen=True, kw_only=True):
    """klog-style verbosity of this actor from now on: 0 warnings and key facts, 2 default, 4 debug, 6 every message."""

    v: int


class Samples(Message, frozen=True, kw_only=True):
    """Where an actor's threads were, seen many times a second."""

    samples: dict[str, int]
    """How often by stack, `THREAD;OUTERMOST;...;INNERMOST`, each frame as `FUNCTION (FILE:LINE)`: what flame graphs are
    drawn from."""


class Profile(Request[Samples], frozen=True, kw_only=True):
    """Look at an actor's threads for some time. A repeat is another profile."""

    seconds: float


class StackTraces(Message, frozen=True, kw_only=True):
    """What each thread is doing."""

    text: str


class Stacks(Request[StackTraces], frozen=True, kw_only=True):
    """Ask what an actor's threads are doing now. A repeat is harmless."""


class Metrics(Message, frozen=True, kw_only=True):
    """What an actor has counted since its process began."""

    incarnation: int

    samples: dict[str, tuple[tuple[tuple[str, ...], tuple[float, ...]], ...]] = {}
    """By metric: label values, and what actors._metrics.registry calls the numbers of a sample."""


class GetMetrics(Request[Metrics], frozen=True, kw_only=True):
    """Ask an actor for its samples. A repeat is harmless."""


class Dumped(Message, frozen=True, kw_only=True):
    """What the I/O thread knows of a mailbox thread that may hang."""

    in_flight: str = ""
    """The message type being handled, or `task NAME`; empty when idle."""
    in_flight_s: float = 0.0
    mailbox_head: tuple[str, ...] = ()
    """Types of the first messages waiting, oldest first, at most 20."""


class Dump(Request[Dumped], frozen=True, kw_only=True):
    """Answered by the actor's I/O thread, not its mailbox: evidence before a watchdog kill. A repeat is harmless."""
