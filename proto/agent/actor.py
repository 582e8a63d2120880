"""Messages that every actor receives. A repeat of any of them is harmless."""

from __future__ import annotations

from typing import Any

from proto.wire.message import Done, Message, Record, Request


class Pong(Message, frozen=True, kw_only=True):
    """Answer to Ping, from the actor's mailbox thread: it proves that handlers run."""

    mailbox: int
    """Messages that wait in the mailbox."""


class Ping(Request[Pong], frozen=True, kw_only=True):
    """From the supervisor's watchdog: answer with the mailbox's depth. A repeat is harmless."""


class Counter(Record, frozen=True, kw_only=True):
    """Counts of one message type since the actor started."""

    type: str
    handled: int
    failed: int = 0
    total_ms: float = 0.0
    """Sum of the handling times."""
    max_ms: float = 0.0


class Description(Message, frozen=True, kw_only=True):
    """An actor's own description, for the command line."""

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
    """The manager's state, as its `describe()` returns it. Never secrets."""


class Describe(Request[Description], frozen=True, kw_only=True):
    """Ask an actor for its counters and its manager's state. A repeat is harmless."""


class Stop(Message, frozen=True, kw_only=True):
    """From the supervisor: finish the running handler, call `on_stop` and exit 0. A repeat is harmless."""


class SetVerbosity(Request[Done], frozen=True, kw_only=True):
    """Set this actor's verbosity, as klog's: 0 warnings and key facts, 2 default, 4 debug, 6 every message.

    A repeat is harmless.
    """

    v: int


class Samples(Message, frozen=True, kw_only=True):
    """Samples of the stacks of an actor's threads, taken many times a second."""

    samples: dict[str, int]
    """Count by stack, the input of flame graphs. A stack is `THREAD;OUTERMOST;...;INNERMOST`.

    Each frame is `FUNCTION (FILE:LINE)`.
    """


class Profile(Request[Samples], frozen=True, kw_only=True):
    """Sample the stacks of an actor's threads for some time. A repeat is another profile."""

    seconds: float


class StackTraces(Message, frozen=True, kw_only=True):
    """The stack of each thread, as text."""

    text: str


class Stacks(Request[StackTraces], frozen=True, kw_only=True):
    """Ask for the present stacks of an actor's threads. A repeat is harmless."""


class Metrics(Message, frozen=True, kw_only=True):
    """An actor's metrics since its process started."""

    incarnation: int

    samples: dict[str, tuple[tuple[tuple[str, ...], tuple[float, ...]], ...]] = {}
    """By metric: tuples of label values and of a sample's numbers, whose order is in actors._metrics.registry."""


class GetMetrics(Request[Metrics], frozen=True, kw_only=True):
    """Ask an actor for its metrics. A repeat is harmless."""


class Dumped(Message, frozen=True, kw_only=True):
    """The state of a mailbox thread that may hang, seen by the I/O thread."""

    in_flight: str = ""
    """The type of the message in its handler, or `task NAME`; empty when idle."""
    in_flight_s: float = 0.0
    mailbox_head: tuple[str, ...] = ()
    """Types of the first messages that wait, oldest first, at most 20."""


class Dump(Request[Dumped], frozen=True, kw_only=True):
    """Ask the actor's I/O thread for the mailbox's state, before the watchdog kills the actor. A repeat is harmless."""
