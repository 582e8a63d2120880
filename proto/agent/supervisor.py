"""Messages that the supervisor receives on control.sock, and events that it publishes on world.sock.

From its children: Ready, Suspect, CgroupDriver, GetAgentHealth. From the command line: ListActors, RestartActor,
StopActor, StartActor, KillActor, StopAgent, StartUpgrade, GetUpgrade, InjectFault, ListFaults, EndFaults.
"""

from __future__ import annotations

from proto.agent.faults import Fault
from proto.wire.message import Done, Message, Record, Request


class Ready(Message, frozen=True, kw_only=True):
    """From a child: its state is rebuilt and it serves. The header names the child and its incarnation. Idempotent."""

    pid: int


class Suspect(Message, frozen=True, kw_only=True):
    """From an actor: another one did not answer its ask in time. The supervisor looks at that one now. Idempotent."""

    name: str
    incarnation: int


class CgroupDriver(Message, frozen=True, kw_only=True):
    """From pod_workers: the container runtime has told its cgroup driver. Idempotent.

    Another driver than the agent's ends the agent, and the service manager's next start uses the runtime's. No pod
    starts before, because its cgroups would be the wrong driver's.
    """

    name: str
    """cgroupfs or systemd; empty: this runtime tells none, and the configured one counts. Any other is ignored."""


class ActorRow(Message, frozen=True, kw_only=True):
    """One line of `supervisor ps`."""

    name: str
    pid: int
    """0: no process."""
    state: str
    """starting, ready, stopping, backoff, degraded, stopped, or lost: SIGKILL did not end it."""
    incarnation: int
    uptime_s: float
    """Since ready; 0 before."""
    restarts: int
    """Starts after the first, by this supervisor."""
    last_death: str = ""
    """`killed by SIGKILL`, `exit 70: KeyError: 'x' (death record PATH)`; empty: no death so far."""
    mailbox: int = 0
    """Mailbox depth at the last heartbeat."""
    degraded: bool = False
    """Past its restart intensity, although it may be in service at the moment."""
    deaths: tuple[tuple[str, str, int], ...] = ()
    """Ends that were not requested: cause, type of the message in the handler (empty: none), count."""
    pss_kib: int = 0
    """Proportional set size; 0 when not measured."""
    cpu_s: float = 0.0
    """CPU time of the process so far; 0 when not measured."""
    restart_in_s: float = 0.0
    """Seconds until the next start, in backoff and degraded."""
    held: bool = False
    """An operator has stopped it: it stays so until an operator starts it."""


class ActorRows(Message, frozen=True, kw_only=True):
    """The process tree, supervisor and forkserver first, then actors in start order."""

    rows: tuple[ActorRow, ...]


class ListActors(Request[ActorRows], frozen=True, kw_only=True):
    """Ask for the process tree, for `supervisor ps`. A repeat is harmless."""

    with_memory: bool = True
    """Give the memory too. The supervisor measures it once a second at most, a millisecond for each process."""
    with_cpu: bool = False
    """Read the CPU time, too."""


class AgentHealth(Message, frozen=True, kw_only=True):
    """Problems of the agent as a whole, for the Node's conditions."""

    degraded: tuple[str, ...]
    """Actors that end again and again, or that SIGKILL does not end."""
    configuration: str
    """The reason why the configuration in the files is not in force; empty when it is."""


class GetAgentHealth(Request[AgentHealth], frozen=True, kw_only=True):
    """From node: the agent's health. A repeat is harmless."""


class RestartActor(Request[ActorRow], frozen=True, kw_only=True):
    """End an actor and start its next incarnation. Answered when that is ready. A repeat restarts again."""

    name: str


class StopActor(Request[ActorRow], frozen=True, kw_only=True):
    """End an actor and keep it stopped until StartActor, RestartActor or the next start of the agent.

    Answered when it has ended. A repeat is harmless.
    """

    name: str


class StartActor(Request[ActorRow], frozen=True, kw_only=True):
    """Start a stopped actor, or one in back-off at once. Answered when it is ready. Harmless when it runs."""

    name: str


class KillActor(Request[ActorRow], frozen=True, kw_only=True):
    """Send an actor SIGKILL, as a fault. Answered at once with its row before; it restarts as after any death.

    Refused: NotRunning. A repeat kills the next incarnation.
    """

    name: str


class StopAgent(Request[Done], frozen=True, kw_only=True):
    """End the agent; pods continue to run. Answered when every actor has ended. A repeat is harmless."""


class UpgradeState(Message, frozen=True, kw_only=True):
    """An upgrade under way, or the last one of this supervisor."""

    under_way: bool
    place: str
    """The release that the supervisor runs."""
    back: bool = False
    """It failed, and returns to the former release."""
    moved: tuple[str, ...] = ()
    """Actors that have passed their trial."""
    trial: str = ""
    """The actor on trial; empty: none."""
    waiting: tuple[str, ...] = ()
    verdict: str = ""
    """`done`, or `failed: ` and the reason; empty while it is under way, and without one."""


class GetUpgrade(Request[UpgradeState], frozen=True, kw_only=True):
    """Ask for the state of the upgrade. A repeat is harmless."""


class StartUpgrade(Request[Done], frozen=True, kw_only=True):
    """Execute another release of the supervisor in place, then restart every actor, each on trial.

    Answered before the exec. Refused: UnderWay, NotReady (retry: an actor is not ready), NotFound, Exposed
    (another user could change the release), NotPossible. The sender has checked that the release starts.
    """

    python: str
    """The release's interpreter, an absolute path."""
    path: tuple[str, ...] = ()
    """Its sys.path; empty: the interpreter's own."""
    place: str = ""
    """The release's directory, for people."""


class Faults(Message, frozen=True, kw_only=True):
    """The injected faults that are active, oldest first."""

    faults: tuple[Fault, ...]
    now: float
    """The present time of their `until`."""


class InjectFault(Request[Faults], frozen=True, kw_only=True):
    """Inject a fault; refused unless the agent was started with --fault-injection. A repeat is another fault."""

    fault: Fault
    duration_s: float = 10.0
    """Not used by kinds that happen once."""


class ListFaults(Request[Faults], frozen=True, kw_only=True):
    """Ask for the active faults. A repeat is harmless."""


class EndFaults(Request[Faults], frozen=True, kw_only=True):
    """End these faults now; all without `ids`. The answer has the remaining ones. A repeat is harmless."""

    ids: tuple[int, ...] = ()


class PeerState(Record, frozen=True, kw_only=True):
    """One actor's state in the PeerStates event."""

    name: str
    incarnation: int
    ready: bool
    """This incarnation's Started event was published, its Exited event was not."""


class PeerStates(Message, frozen=True, kw_only=True):
    """Event: a snapshot of all actors, for each new subscriber and after a change of the whole process tree."""

    peers: tuple[PeerState, ...]


class Started(Message, frozen=True, kw_only=True):
    """Event: this incarnation is ready."""

    name: str
    incarnation: int


class Exited(Message, frozen=True, kw_only=True):
    """Event: this incarnation has ended, or is given up as lost. Its unanswered asks fail with ActorDead."""

    name: str
    incarnation: int
    reason: str


class TellsLost(Message, frozen=True, kw_only=True):
    """Not published: an actor's bus noticed that this incarnation of a peer has not received all tells from here."""

    name: str
    incarnation: int


class Note(Message, frozen=True, kw_only=True):
    """Event: a remark for operators, for example a degraded actor, a watchdog kill or a new forkserver."""

    level: str
    """info, warning, error."""
    actor: str
    text: str
    reason: str = ""
    """CamelCase reason of the Kubernetes event that the events actor makes; empty: Supervision."""


EVENTS: dict[str, type[Message]] = {kind.__name__: kind for kind in (PeerStates, Started, Exited, Note)}
