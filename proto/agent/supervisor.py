"""Messages the supervisor receives on control.sock, and the events it publishes on world.sock.

From its children: Ready, Failed. From the command line and consoles: ListActors, RestartActor, StopAgent.
"""

from __future__ import annotations

from proto.wire.message import Done, Message, Record, Request


class Ready(Message, frozen=True, kw_only=True):
    """From a child: its state is rebuilt and it serves. The header's source and incarnation say which. Idempotent."""

    pid: int


class ActorRow(Message, frozen=True, kw_only=True):
    """One line of `supervisor ps`."""

    name: str
    pid: int
    """0 while there is no process."""
    state: str
    """starting, ready, stopping, backoff, degraded, stopped, lost (SIGKILL did not end it)."""
    incarnation: int
    uptime_s: float
    """Since ready; 0 before."""
    restarts: int
    """Starts after the first, by this supervisor."""
    last_death: str = ""
    """`killed by SIGKILL`, `exit 70: KeyError: 'x' (death record PATH)`; empty if it never died."""
    mailbox: int = 0
    """Mailbox depth at the last heartbeat."""
    pss_kib: int = 0
    """Proportional set size, read when asked for."""
    restart_in_s: float = 0.0
    """Seconds until the next start, in backoff and degraded."""


class ActorRows(Message, frozen=True, kw_only=True):
    """The process tree, supervisor and forkserver first, then actors in start order."""

    rows: tuple[ActorRow, ...]


class ListActors(Request[ActorRows], frozen=True, kw_only=True):
    """What `supervisor ps` shows. A repeat is harmless."""

    with_memory: bool = True
    """Read each process's memory, a millisecond apiece in the supervisor's loop."""


class RestartActor(Request[ActorRow], frozen=True, kw_only=True):
    """End one actor and start its next incarnation; answered when that one is ready. A repeat restarts again."""

    name: str


class StopAgent(Request[Done], frozen=True, kw_only=True):
    """End the agent. Pods go on running. Answered once every actor is gone. A repeat is harmless."""


class PeerState(Record, frozen=True, kw_only=True):
    """What the event stream says of one actor."""

    name: str
    incarnation: int
    ready: bool


class World(Message, frozen=True, kw_only=True):
    """Event: every actor's present state; sent to each new subscriber and after every change of a whole tree."""

    peers: tuple[PeerState, ...]


class Started(Message, frozen=True, kw_only=True):
    """Event: this incarnation is in service."""

    name: str
    incarnation: int


class Exited(Message, frozen=True, kw_only=True):
    """Event: this incarnation is gone, or written off. Asks it has not answered fail with ActorDead."""

    name: str
    incarnation: int
    reason: str


class Note(Message, frozen=True, kw_only=True):
    """Event: something an operator may want to see (degraded, watchdog kill, forkserver replaced)."""

    level: str
    """info, warning, error."""
    actor: str
    text: str
    reason: str = ""
    """CamelCase, of the event that the events actor makes of it; empty: Supervision."""


EVENTS: dict[str, type[Message]] = {kind.__name__: kind for kind in (World, Started, Exited, Note)}
