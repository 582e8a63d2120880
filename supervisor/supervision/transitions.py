"""Events, instructions and the transition table of the supervision state machine in `process_tree`. Values only.

An event names the incarnation that it is about. An event about another than the present incarnation changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from proto.wire.message import Message


class State(enum.Enum):
    """A child's state, by the names that `supervisor ps` shows."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    LOST = "lost"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.STOPPED: frozenset({State.STARTING}),
    # ready; ended; asked to stop or hung
    State.STARTING: frozenset(
        {State.READY, State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.STOPPING}
    ),
    State.READY: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.STOPPING}),
    # ended, followed by its restart policy; not ended by SIGKILL
    State.STOPPING: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.LOST}),
    State.BACKOFF: frozenset({State.STARTING, State.STOPPED}),
    State.DEGRADED: frozenset({State.STARTING, State.STOPPED}),
    # written off: handled as an end
    State.LOST: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED}),
}
"""All transitions by state."""


@dataclass(frozen=True, slots=True)
class _OfIncarnation:
    """An event or instruction about one incarnation of a child."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Taken(_OfIncarnation):
    """A ready process of the former supervisor with this pid."""

    pid: int
    ready: float
    starts: int
    deaths: int
    last_death: str


@dataclass(frozen=True, slots=True)
class Boot:
    """Start the tree."""


@dataclass(frozen=True, slots=True)
class Forked(_OfIncarnation):
    """The forkserver made the process."""

    pid: int


@dataclass(frozen=True, slots=True)
class ForkFailed(_OfIncarnation):
    """There is no process. `lost`: the forkserver ended before its answer, so the child is not at fault."""

    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ReadyReceived(_OfIncarnation):
    """A child reports that it is ready."""

    pid: int


@dataclass(frozen=True, slots=True)
class Gone(_OfIncarnation):
    """The process has ended. `Ended` follows, with the exit status, or within process.processes.STATUS_WAIT_S."""


@dataclass(frozen=True, slots=True)
class Ended(_OfIncarnation):
    """The process has ended. `wait_status` None: unknown. `detail`: the last line of its death record."""

    wait_status: int | None
    detail: str = ""
    call: str = ""
    """The message that was in its handler."""


@dataclass(frozen=True, slots=True)
class PongReceived(_OfIncarnation):
    """The mailbox answered the Ping. `mailbox` is its length."""

    mailbox: int
    memory_kib: int = 0
    """Anonymous memory of the process; 0 if unknown."""
    busy: str = ""
    """Its work under way; only read past its memory ceiling."""


@dataclass(frozen=True, slots=True)
class SeenIdle(_OfIncarnation):
    """Instead of a Ping: no message waits or is handled, and the I/O thread waits for input (`health/idleness`)."""

    memory_kib: int = 0
    busy: str = ""
    """As in PongReceived."""


@dataclass(frozen=True, slots=True)
class Halted(_OfIncarnation):
    """A signal stopped the process (SIGSTOP, state T)."""


@dataclass(frozen=True, slots=True)
class Continued(_OfIncarnation):
    """SIGCONT continued the process."""


@dataclass(frozen=True, slots=True)
class Suspected(_OfIncarnation):
    """Another actor waited in vain for its answer."""


@dataclass(frozen=True, slots=True)
class SocketGone(_OfIncarnation):
    """Its socket file was removed: no new peer reaches it."""


@dataclass(frozen=True, slots=True)
class EvidenceSaved(_OfIncarnation):
    """The evidence of a child is on disk. `stall`: the kind of a hung child's stall and a sentence."""

    path: str
    stall: str = ""


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """A request for the next incarnation. `asker` comes back in the answer.

    `end_within_s` shortens the present incarnation's time to end.
    """

    name: str
    asker: object
    end_within_s: float | None = None


@dataclass(frozen=True, slots=True)
class ActorOrdered:
    """An operator's request about one actor. `asker` comes back in the answer."""

    order: Literal["stop", "start", "kill"]
    name: str
    asker: object


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Stop the tree. `asker` is None after a signal."""

    asker: object = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Check deadlines. Due at `next_wakeup`, after all messages that have arrived by then."""


Event = (
    Boot
    | Forked
    | ForkFailed
    | ReadyReceived
    | Gone
    | Ended
    | PongReceived
    | SeenIdle
    | Halted
    | Continued
    | Suspected
    | SocketGone
    | EvidenceSaved
    | RestartAsked
    | ActorOrdered
    | StopAsked
    | Tick
)


@dataclass(frozen=True, slots=True)
class Fork(_OfIncarnation):
    """Fork a process. The incarnation must be on disk before."""


@dataclass(frozen=True, slots=True)
class AskStop(_OfIncarnation):
    """Request an orderly end: the Stop message when `in_service`, else SIGTERM."""

    in_service: bool


@dataclass(frozen=True, slots=True)
class Kill(_OfIncarnation):
    """Send SIGKILL."""


@dataclass(frozen=True, slots=True)
class SendPing(_OfIncarnation):
    """Send a Ping to the mailbox."""

    unless_idle: bool = False
    """Report SeenIdle instead, without waking it, if the process has nothing to do."""


@dataclass(frozen=True, slots=True)
class SaveEvidence(_OfIncarnation):
    """Save the state of a hung child, then report EvidenceSaved. It is killed anyway when that takes too long."""

    why: str


@dataclass(frozen=True, slots=True)
class SaveGrowth(_OfIncarnation):
    """Save what a child's memory consists of, then report EvidenceSaved. It is stopped anyway when that takes long."""

    why: str
    sizes: tuple[str, ...]
    """Its sizes over time, as lines."""


@dataclass(frozen=True, slots=True)
class WriteOff(_OfIncarnation):
    """Forget a process that SIGKILL did not end."""


@dataclass(frozen=True, slots=True)
class RecordDeath(_OfIncarnation):
    """Write an end that was not requested to the log of deaths."""

    cause: str
    reason: str
    call: str
    evidence: str
    degraded: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event of proto.agent.supervisor."""

    message: Message


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer an asker, with a message or an error of proto.wire.errors."""

    asker: object
    answer: Message | Exception


Instruction = Fork | AskStop | Kill | SendPing | SaveEvidence | SaveGrowth | WriteOff | RecordDeath | Publish | Answer
