"""What goes into the supervision state machine and what comes out of it. Values only; process_tree.py is the machine.

Events name the incarnation they are about, and one about another than the present incarnation changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from proto.wire.message import Message


class State(enum.Enum):
    """Where a child stands, by the names `supervisor ps` shows."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    LOST = "lost"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.STOPPED: frozenset({State.STARTING}),
    # Ready; ended; told to stop or hung
    State.STARTING: frozenset(
        {State.READY, State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.STOPPING}
    ),
    State.READY: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.STOPPING}),
    # ended, and then whatever its policy says; not even SIGKILL ended it
    State.STOPPING: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED, State.LOST}),
    State.BACKOFF: frozenset({State.STARTING, State.STOPPED}),
    State.DEGRADED: frozenset({State.STARTING, State.STOPPED}),
    # written off: as if it had ended
    State.LOST: frozenset({State.STARTING, State.BACKOFF, State.DEGRADED, State.STOPPED}),
}
"""Every move there is."""


@dataclass(frozen=True, slots=True)
class Boot:
    """Start the tree."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The forkserver made the process."""

    name: str
    incarnation: int
    pid: int


@dataclass(frozen=True, slots=True)
class ForkFailed:
    """There is no process. `lost`: nobody knows, the forkserver went away meanwhile; not the child's fault."""

    name: str
    incarnation: int
    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ReadySaid:
    """A child says that it serves."""

    name: str
    incarnation: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone. `wait_status` None: it could not be had. `detail`: the last line of its death record."""

    name: str
    incarnation: int
    wait_status: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ponged:
    """The mailbox answered the Ping."""

    name: str
    incarnation: int
    mailbox: int


@dataclass(frozen=True, slots=True)
class EvidenceSaved:
    """What a hung child was doing is on disk."""

    name: str
    incarnation: int
    path: str


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """Somebody wants the next incarnation; `asker` is handed back in the answer.

    `end_within_s` makes the time that the present one has to end shorter than its spec's.
    """

    name: str
    asker: object
    end_within_s: float | None = None


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Stop the tree. `asker` None: a signal."""

    asker: object = None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on; send when `next_wakeup` has come. Messages that have arrived by then go first."""


Event = Boot | Forked | ForkFailed | ReadySaid | Ended | Ponged | EvidenceSaved | RestartAsked | StopAsked | Tick


@dataclass(frozen=True, slots=True)
class Fork:
    """Make a process. The incarnation must be on disk before."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskStop:
    """Ask politely: the Stop message when `in_service`, else SIGTERM."""

    name: str
    incarnation: int
    in_service: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SendPing:
    """Ask the mailbox for a sign of life."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SaveEvidence:
    """Save what a hung child is doing, then say EvidenceSaved; it is killed anyway when that takes too long."""

    name: str
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class WriteOff:
    """Forget a process that SIGKILL did not end."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event of proto.agent.supervisor."""

    message: Message


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer an asker, with a message or an error of proto.wire.errors."""

    asker: object
    answer: Message | Exception


Instruction = Fork | AskStop | Kill | SendPing | SaveEvidence | WriteOff | Publish | Answer
