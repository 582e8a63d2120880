"""What the supervision state machine knows of one child. Data; the moves are process_tree.py's."""

from __future__ import annotations

from dataclasses import dataclass, field

from proto.agent.supervisor import ActorRow
from supervisor.supervision.policy import History, Run
from supervisor.supervision.specs import ChildSpec
from supervisor.supervision.transitions import State


@dataclass(slots=True)
class Child:
    """One actor, across its incarnations. Times are monotonic."""

    spec: ChildSpec
    incarnation: int
    """The present one, or the last; 0 before the first."""
    state: State = State.STOPPED
    pid: int = 0
    started: float = 0.0
    """When the present incarnation's fork was asked for."""
    early_ready: int = 0
    """The pid in a Ready that overtook the forkserver's word of the fork."""
    ready: float | None = None
    deadline: float | None = None
    """When the present state ends by itself: start deadline, end of back-off, next step of stopping."""
    next_ping: float | None = None
    pinged: float | None = None
    """When the Ping that is still unanswered was sent."""
    asked: bool = False
    """Told to stop."""
    hung: str = ""
    """Why the watchdog is ending it."""
    killed: bool = False
    """SIGKILL has been sent."""
    again: bool = False
    """Start the next incarnation when this one is gone, whatever its restart type."""
    tried: bool = False
    """Its first start has come to something, good or bad: dependents need not wait any longer."""
    starts: int = 0
    deaths: int = 0
    """Ends that nobody asked for."""
    ponged: float | None = None
    """When the present incarnation last answered a Ping."""
    history: History = field(default_factory=History)
    last_death: str = ""
    evidence: str = ""
    mailbox: int = 0
    askers: list[object] = field(default_factory=list)
    """Who waits for its next Ready."""

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.spec.name

    @property
    def alive(self) -> bool:
        """Whether there is, or is about to be, a process."""
        return self.state in (State.STARTING, State.READY, State.STOPPING)

    def begin(self, now: float) -> None:
        """Forget the last incarnation, count the next."""
        self.incarnation += 1
        self.starts += 1
        self.started = now
        self.pid = self.early_ready = self.mailbox = 0
        self.ready = self.deadline = self.next_ping = self.pinged = self.ponged = None
        self.asked = self.killed = self.again = False
        self.hung = self.evidence = ""

    def run(self, now: float) -> Run:
        """The life of the incarnation that ends now."""
        return Run(self.started, self.ready, now)

    def row(self, now: float) -> ActorRow:
        """Its line in `supervisor ps`, without PSS."""
        waiting = self.state in (State.BACKOFF, State.DEGRADED) and self.deadline is not None
        return ActorRow(
            name=self.name,
            pid=self.pid,
            state=self.state.value,
            incarnation=self.incarnation,
            uptime_s=round(now - self.ready, 3) if self.ready is not None and self.pid else 0.0,
            restarts=max(0, self.starts - 1),
            last_death=self.last_death,
            mailbox=self.mailbox,
            restart_in_s=round(max(0.0, (self.deadline or 0.0) - now), 3) if waiting else 0.0,
        )
