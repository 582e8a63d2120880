"""Messages that every actor receives. A repeat of any of them is harmless."""

from __future__ import annotations

from typing import Any

from proto.agent.faults import Fault
from proto.wire.message import Done, Message, Record, Request


class Pong(Message, frozen=True, kw_only=True):
    """Answer to Ping, from the actor's mailbox thread: it proves that handlers run."""

    mailbox: int
    """Messages that wait in the mailbox."""


class Ping(Request[Pong], frozen=True, kw_only=True):
    """From the supervisor's watchdog: answer with the mailbox's depth. A repeat is harmless."""


class Receipt(Message, frozen=True, kw_only=True):
    """Answer to CheckReceived."""

    tells: int
    """From the sender's incarnation to this one."""
    unknown_asks: tuple[int, ...] = ()
    """Numbers in `CheckReceived.asks` that no handler works on here: the ask or its answer was lost."""


class CheckReceived(Request[Receipt], frozen=True, kw_only=True):
    """From a peer: ask which of its messages to this incarnation have arrived. A repeat is harmless.

    The I/O thread answers. The peer asks some seconds after a message. If tells were lost it sends its state again;
    lost asks fail.
    """

    asks: tuple[int, ...] = ()
    """Numbers of asks that wait for an answer."""


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
    """Messages not handled, by cause: undecodable, unknown_type, dead_incarnation, too_early, queue_full.

    `lost`: messages from here that a peer has not received."""
    messages: tuple[Counter, ...] = ()
    state: dict[str, Any] = {}
    """The manager's state, as its `describe()` returns it. Never secrets."""


class Describe(Request[Description], frozen=True, kw_only=True):
    """Ask an actor for its counters and its manager's state. A repeat is harmless."""


class Stop(Message, frozen=True, kw_only=True):
    """From the supervisor: finish the running handler, call `on_shutdown` and exit 0. A repeat is harmless."""


class SetFaults(Message, frozen=True, kw_only=True):
    """From the supervisor: all active faults. Only an agent with --fault-injection obeys. Idempotent."""

    faults: tuple[Fault, ...]


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


class TypeUse(Record, frozen=True, kw_only=True):
    """The objects of one type."""

    type: str
    count: int
    kib: int
    """Of the objects themselves, without their parts."""


class MemoryUse(Message, frozen=True, kw_only=True):
    """The objects of an actor's process by type, as its I/O thread finds them."""

    types: tuple[TypeUse, ...] = ()
    """The largest first, at most 20."""
    objects: int = 0
    """Objects that the garbage collector tracks, without those from before the fork."""
    examined: int = 0
    """So many of them were examined, evenly spread; the numbers of `types` are of these."""
    allocations: tuple[str, ...] = ()
    """The source lines that allocated most, of tracemalloc; empty unless the agent runs with PYTHONTRACEMALLOC=1."""


class GetMemory(Request[MemoryUse], frozen=True, kw_only=True):
    """Ask the actor's I/O thread what its memory consists of, which takes it up to a second. A repeat is harmless."""


class Inspected(Message, frozen=True, kw_only=True):
    """A part of an actor's state."""

    value: Any = None
    """Plain values. Bytes, secrets and what exceeds the bounds are replaced by a text in angle brackets."""


class Inspect(Request[Inspected], frozen=True, kw_only=True):
    """Ask the actor's I/O thread for a part of its state, also while a handler hangs. A repeat is harmless.

    Refused: NoSuchPath.
    """

    path: str = ""
    """Attributes and keys, such as `workers[default/web].stage`; empty: the actor itself."""
    depth: int = 3
    """Levels below the path, at most 8."""


class WaitingMessage(Record, frozen=True, kw_only=True):
    """A message in a mailbox."""

    type: str
    """Of a coroutine that goes on, its name."""
    source: str = ""
    """The sender; empty for the actor's own work."""
    waited_ms: float = 0.0
    """Since it was sent; 0 for the actor's own work."""
    bytes: int = 0


class MailboxContent(Message, frozen=True, kw_only=True):
    """A mailbox as the I/O thread sees it."""

    in_flight: str = ""
    """The message in its handler; empty when idle."""
    in_flight_ms: float = 0.0
    depth: int = 0
    head: tuple[WaitingMessage, ...] = ()
    """The messages that wait longest, oldest first, at most 100."""
    counts: dict[str, int] = {}
    """Waiting messages by type, of the first 10,000."""


class ListMailbox(Request[MailboxContent], frozen=True, kw_only=True):
    """Ask the actor's I/O thread for its mailbox. A repeat is harmless."""


class Evaluated(Message, frozen=True, kw_only=True):
    """The value of an expression."""

    text: str
    """Its repr, at most 64 KiB."""
    error: str = ""
    """The exception that it raised; empty: none."""


class Evaluate(Request[Evaluated], frozen=True, kw_only=True):
    """Evaluate a Python expression in the actor's mailbox thread, where `actor` is the actor. For debugging only.

    It may change anything, and a long one delays the actor as a handler does. A repeat evaluates it again.
    """

    expression: str
