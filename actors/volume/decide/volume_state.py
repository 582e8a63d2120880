"""What the volume actor knows of each pod: desired state, actual state, and who is at work on it. No decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors._base import Semaphore, Task
from actors._base.messaging.mailbox import TimerHandle
from actors.volume.policy import Actual, Wanted
from actors.volume.steps.csi import Volume as CsiVolume
from proto.pods.objects import ObjectRef, SetClaimCapacity
from proto.v1 import Pod


@dataclass
class AtWork:
    """A driver at a volume, since those Unix seconds."""

    since: float
    task: Task[None] | None = None


@dataclass
class PodVolumes:
    """One pod."""

    pod: Pod | None = None
    """The desired state; None while nobody asked for its volumes, and once they are to go."""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    actual: dict[str, Actual] = field(default_factory=dict)
    further: dict[str, frozenset[ObjectRef]] = field(default_factory=dict)
    """The objects that a volume's own name in turn, as they were read last."""
    persistent: dict[str, str] = field(default_factory=dict)
    """The persistent volumes it has or is about to have, by name in the pod."""
    exhausted: dict[str, float] = field(default_factory=dict)
    """Volumes that are not attached because the node has too many, by name in the pod: since when (monotonic)."""
    groups: dict[str, int] = field(default_factory=dict)
    """The groups that persistent volumes are said to belong to, by name in the pod."""
    csi: bool = True
    """It has, or may have, volumes of CSI drivers."""
    at_work: dict[str, AtWork] = field(default_factory=dict)
    """What is under way with CSI drivers, by name of the volume."""
    again: set[str] = field(default_factory=set)
    """Volumes that are there, and to be published again."""
    published: dict[str, CsiVolume] = field(default_factory=dict)
    """By name in the pod."""
    sizes: dict[str, int] = field(default_factory=dict)
    """What the file systems of persistent volumes have been made for, by name in the pod."""
    growing: dict[str, SetClaimCapacity] = field(default_factory=dict)
    """What is to be said of the claims whose volumes are being grown, by name in the pod."""
    told_grown: set[str] = field(default_factory=set)
    """Names of the volumes of which that was said a moment ago."""
    devices: set[str] = field(default_factory=set)
    """The persistent volumes of this node that it has or tried to have: their disks may go once it has gone."""
    turn: Semaphore = field(default_factory=lambda: Semaphore(1))
    """One batch of steps at a time."""
    users: int = 0
    """Requests at work or in wait for their turn."""
    changes: int = 0
    """Of the desired state."""
    settled: int = -1
    """`changes` when all was last as desired."""
    refused: bool = False
    """Whoever asked was refused, and has not been told of anything better."""
    timer: TimerHandle | None = None
    renewal: TimerHandle | None = None
    """When a token is due."""
    renewal_at: float = 0.0
    """Unix seconds."""
    on_disk: bool = False
    error: str = ""
    """Of the removal."""
    stuck_pid: int = 0
    """The helper that the kernel keeps in the removal."""

    def desire(self, pod: Pod, wanted: dict[str, Wanted]) -> None:
        """The pod as it should be from now on."""
        if self.pod != pod:
            self.pod, self.wanted = pod, wanted
            self.further = {name: refs for name, refs in self.further.items() if name in wanted}
            self.changes += 1

    def give_up(self) -> None:
        """Nothing of the pod is wanted any more."""
        self.pod, self.wanted = None, {}
        self.exhausted.clear()
        self.changes += 1
        self.stop_timer()
        self.stop_renewal()

    def stop_timer(self) -> None:
        """No further try by itself."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def stop_renewal(self) -> None:
        """No look for the sake of a token."""
        if self.renewal is not None:
            self.renewal.cancel()
            self.renewal = None

    def users_of(self, changed: frozenset[ObjectRef]) -> list[str]:
        """Names of the volumes that are made of one of these objects."""
        kinds = {ObjectRef(kind=ref.kind, namespace=ref.namespace) for ref in changed}
        every = changed | kinds  # a ref without name is every object of its kind
        return [name for name in self.wanted if not every.isdisjoint(self.refs_of(name))]

    def refs_of(self, name: str) -> frozenset[ObjectRef]:
        """The objects the volume is made of."""
        return self.further.get(name, frozenset()).union(self.wanted[name].refs if name in self.wanted else ())

    @property
    def is_settled(self) -> bool:
        """Everything is as desired."""
        return self.settled == self.changes

    @property
    def is_mounted(self) -> bool:
        """Every volume is there, if perhaps not with the latest content."""
        states = (self.actual.get(name) for name in self.wanted)
        return all(one is not None and one.mounted and not one.silent for one in states)
