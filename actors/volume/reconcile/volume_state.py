"""The volume state of each pod: desired and actual volumes, and the work in progress. No decisions."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from actors._base import Semaphore, Task
from actors._base.messaging.mailbox import TimerHandle
from actors.volume.mount_points import PodMountPoints, find_mount_points
from actors.volume.plugins.base import CannotMount
from actors.volume.policy import Actual, Wanted
from actors.volume.steps.csi import Volume as CsiVolume
from proto.pods.objects import ObjectRef
from proto.v1 import ObjectReference, Pod

log = logging.getLogger(__name__)


@dataclass
class DriverCall:
    """A driver's call for a volume; `since` in Unix seconds."""

    since: float
    task: Task[None] | None = None


@dataclass(frozen=True)
class Growing:
    """A volume's growth, and what its claim is told."""

    claim: ObjectReference
    size: int
    """Bytes of the PersistentVolume."""
    requested: int
    """Bytes that the claim requested when the growth began."""
    capacity: str
    """The claim's new capacity; empty when it has that already."""


@dataclass
class PodVolumes:
    """The volumes of one pod. Dictionaries are by volume name in the pod."""

    pod: Pod | None = None
    """The desired state; None before MountPod and after UnmountPod."""
    ending: bool = False
    """The pod ends: failed refreshes are no event."""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    mount_points: PodMountPoints = field(default_factory=PodMountPoints)
    """Mount points in the wanted volumes of files."""
    actual: dict[str, Actual] = field(default_factory=dict)
    further_refs: dict[str, frozenset[ObjectRef]] = field(default_factory=dict)
    """Objects that are named by the volume's objects, as read last."""
    persistent: dict[str, str] = field(default_factory=dict)
    """Names of PersistentVolumes that the pod has or is about to mount."""
    exhausted: dict[str, float] = field(default_factory=dict)
    """Monotonic seconds since when a volume is not attached because of the node's limit."""
    groups: dict[str, int] = field(default_factory=dict)
    """Groups of PersistentVolumes, from their annotation."""
    csi: bool = True
    """The pod has, or may have, CSI volumes."""
    driver_calls: dict[str, DriverCall] = field(default_factory=dict)
    """Calls in progress."""
    republish_at: dict[str, float] = field(default_factory=dict)
    """Monotonic seconds of the next publication of mounted volumes whose driver wants repeated ones."""
    published: dict[str, CsiVolume] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes for which the file systems of PersistentVolumes were made."""
    growing: dict[str, Growing] = field(default_factory=dict)
    """The last growth of each volume."""
    reported_growth: set[str] = field(default_factory=set)
    """Volumes whose claim was updated a moment ago."""
    failed_growth: set[str] = field(default_factory=set)
    """Volumes whose driver failed to grow them, and that have not grown since."""
    refused_growth: set[str] = field(default_factory=set)
    """Volumes that their driver does not grow while a pod uses them."""
    devices: set[str] = field(default_factory=set)
    """Local PersistentVolumes that the pod has or tried to mount; their disks may be released after it."""
    lock: Semaphore = field(default_factory=lambda: Semaphore(1))
    """One batch of steps at a time."""
    requests: int = 0
    """Requests that run or wait for the lock."""
    changes: int = 0
    """Number of changes of the desired state."""
    settled: int = -1
    """Value of `changes` when the volumes were last as desired."""
    refused: bool = False
    """The last MountPod was refused, and pod_workers has not been told since that the volumes are mounted."""
    timer: TimerHandle | None = None
    """Timer of the next retry."""
    overdue: TimerHandle | None = None
    """Timer of the event about volumes that are not mounted in time."""
    republication: TimerHandle | None = None
    """Timer of the next repeated publication."""
    renewal: TimerHandle | None = None
    """Timer of the next token renewal."""
    renewal_at: float = 0.0
    """Unix seconds."""
    on_disk: bool = False
    error: str = ""
    """Error of the last removal."""
    stuck_pid: int = 0
    """PID of the helper that the kernel keeps in the removal."""

    def desire(self, pod: Pod, wanted: dict[str, Wanted]) -> None:
        """Set the desired state."""
        if self.pod != pod:
            self.pod, self.wanted = pod, wanted
            self._find_mount_points(pod)
            self.further_refs = {name: refs for name, refs in self.further_refs.items() if name in wanted}
            self.changes += 1

    def _find_mount_points(self, pod: Pod) -> None:
        # Here and not in each round: a pod may have thousands of mounts. Only volumes of files refresh.
        before = self.mount_points.left_out
        self.mount_points = find_mount_points(pod, {one.name for one in self.wanted.values() if one.plugin.refreshes})
        if self.mount_points.left_out not in ("", before):
            log.warning("pod %s: %s", pod.metadata.uid, self.mount_points.left_out)

    def withdraw(self) -> None:
        """Clear the desired state."""
        self.pod, self.wanted, self.mount_points = None, {}, PodMountPoints()
        self.ending = False
        self.exhausted.clear()
        self.changes += 1
        self.stop_timer()
        self.stop_overdue()
        self.stop_republication()
        self.stop_renewal()

    def publish(self, name: str, volume: CsiVolume) -> None:
        """Record a CSI volume that is to be published. Raises CannotMount if it would share another's directory."""
        for other, one in self.published.items():
            same = (one.driver, one.handle) == (volume.driver, volume.handle)
            if other != name and other in self.wanted and one.spec_name == volume.spec_name and not same:
                text = f'volume "{other}" of the pod has the same name: {volume.spec_name}'
                raise CannotMount(text, volume=volume.spec_name)
        self.published[name] = volume

    def forget_published(self) -> None:
        """Forget CSI volumes that are unpublished."""
        for known in (self.published, self.sizes, self.republish_at, self.growing):
            known.clear()
        for names in (self.reported_growth, self.failed_growth, self.refused_growth):
            names.clear()

    def stop_timer(self) -> None:
        """Cancel the next retry."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def stop_overdue(self) -> None:
        """Cancel the event about volumes that are not mounted in time."""
        if self.overdue is not None:
            self.overdue.cancel()
            self.overdue = None

    def stop_republication(self) -> None:
        """Cancel the next repeated publication."""
        if self.republication is not None:
            self.republication.cancel()
            self.republication = None

    def stop_renewal(self) -> None:
        """Cancel the next token renewal."""
        if self.renewal is not None:
            self.renewal.cancel()
            self.renewal = None

    def users_of(self, changed: frozenset[ObjectRef]) -> list[str]:
        """Names of the volumes that use one of these objects."""
        kinds = {ObjectRef(kind=ref.kind, namespace=ref.namespace) for ref in changed}
        every = changed | kinds  # a ref without name stands for every object of its kind
        return [name for name in self.wanted if not every.isdisjoint(self.refs_of(name))]

    def republish_users_of(self, changed: frozenset[ObjectRef]) -> None:
        """Have volumes whose driver wants it published at once, if their CSIDriver or a Secret of theirs changed."""
        changed = frozenset(ref for ref in changed if ref.kind in ("CSIDriver", "Secret"))
        for name in self.republish_at:
            if not changed.isdisjoint(self.refs_of(name)):
                self.republish_at[name] = time.monotonic()

    def refs_of(self, name: str) -> frozenset[ObjectRef]:
        """All objects that the volume uses."""
        return self.further_refs.get(name, frozenset()).union(self.wanted[name].refs if name in self.wanted else ())

    @property
    def is_empty(self) -> bool:
        """True when nothing is known of the pod, and no request runs."""
        return self.pod is None and not (self.requests or self.on_disk or self.actual or self.stuck_pid)

    @property
    def is_settled(self) -> bool:
        """True when every volume is as desired."""
        return self.settled == self.changes

    @property
    def is_mounted(self) -> bool:
        """True when every volume is mounted, perhaps with older content."""
        states = (self.actual.get(name) for name in self.wanted)
        return all(one is not None and one.mounted and not one.unresponsive for one in states)
