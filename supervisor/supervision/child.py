"""One child's state in the supervision state machine. Data; `process_tree` changes it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from proto.agent.supervisor import ActorRow
from supervisor.supervision.memory import Growth
from supervisor.supervision.policy import History, Run
from supervisor.supervision.specs import ChildSpec
from supervisor.supervision.transitions import State

MOST_CAUSES = 20
"""Labels of one actor's deaths; further message types count as `other`."""


@dataclass(slots=True)
class Child:
    """One actor, across its incarnations. Times are monotonic."""

    spec: ChildSpec
    incarnation: int
    """The present or last incarnation; 0 before the first."""
    state: State = State.STOPPED
    pid: int = 0
    started: float = 0.0
    """The time of the request to fork the present incarnation."""
    early_ready: int = 0
    """The pid in a Ready that arrived before the forkserver's report of the fork."""
    ready: float | None = None
    deadline: float | None = None
    """The end of the present state: start deadline, end of back-off or next step of stopping."""
    next_ping: float | None = None
    pinged: float | None = None
    """The time of a Ping that is not answered yet."""
    suspected: bool = False
    """Another actor waited in vain for an answer; ends with the next Pong."""
    stopped: float | None = None
    """The time at which its process was stopped (SIGSTOP), until it is continued."""
    asked: bool = False
    """The supervisor has requested its end."""
    hung: str = ""
    """The watchdog's reason to end it."""
    growing: str = ""
    """The reason to replace it for its memory, while the evidence is collected."""
    outgrown: str = ""
    """The same, once its end is requested."""
    outgrown_at: float | None = None
    """The time of the last such replacement, of any incarnation."""
    end_within_s: float = math.inf
    """A request's limit of its time to end."""
    killed: bool = False
    """SIGKILL has been sent."""
    again: bool = False
    """Start the next incarnation at this one's end, for every restart type."""
    tried: bool = False
    """Its first start has succeeded or failed, so that its dependents may start."""
    starts: int = 0
    deaths: int = 0
    """Unrequested ends."""
    ponged: float | None = None
    """The present incarnation's last answer to a Ping."""
    history: History = field(default_factory=History)
    last_death: str = ""
    evidence: str = ""
    call: str = ""
    """The message in the handler of the incarnation that ended."""
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Deaths by cause and type of that message, for metrics."""
    mailbox: int = 0
    growth: Growth = field(default_factory=Growth)
    held: bool = False
    """An operator has stopped it: it does not start by itself."""
    stop_askers: list[object] = field(default_factory=list)
    """Requests that wait for its end."""
    askers: list[object] = field(default_factory=list)
    """Requests that wait for its next Ready."""

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.spec.name

    @property
    def alive(self) -> bool:
        """True while a process exists or is being forked."""
        return self.state in (State.STARTING, State.READY, State.STOPPING)

    @property
    def in_service(self) -> bool:
        """True from its Started event to its Exited event: a child that is stopping still answers."""
        return self.state is State.READY or (self.state is State.STOPPING and self.ready is not None)

    def begin(self, now: float) -> None:
        """Reset the state for the next incarnation."""
        self.incarnation += 1
        self.starts += 1
        self.started = now
        self.pid = self.early_ready = self.mailbox = 0
        self.ready = self.deadline = self.next_ping = self.pinged = self.ponged = self.stopped = None
        self.end_within_s = math.inf
        self.asked = self.killed = self.again = self.suspected = False
        self.hung = self.growing = self.outgrown = self.evidence = self.call = ""
        self.growth = Growth()

    def died(self, cause: str, reason: str) -> None:
        """Count an end that was not requested."""
        self.last_death = reason
        self.deaths += 1
        key = (cause, self.call.partition(" ")[0])
        self.causes[key if key in self.causes or len(self.causes) < MOST_CAUSES else (cause, "other")] += 1

    def run(self, now: float) -> Run:
        """The life of the incarnation that ends now."""
        return Run(self.started, self.ready, now)

    def row(self, now: float) -> ActorRow:
        """The child's row in `supervisor ps`, without PSS."""
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
            degraded=self.history.degraded,
            deaths=tuple((cause, call, count) for (cause, call), count in self.causes.items()),
            held=self.held,
            restart_in_s=round(max(0.0, (self.deadline or 0.0) - now), 3) if waiting else 0.0,
        )
