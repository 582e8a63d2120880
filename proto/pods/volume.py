"""Messages that the volume actor receives: requests to mount, unmount, read and measure volumes of pods."""

from __future__ import annotations

from proto.pods.objects import ObjectRef
from proto.v1 import Pod
from proto.wire.message import Done, Message, Record, Request

LIMIT_EXCEEDED = "VolumeAttachmentLimitExceeded"


class PodMounted(Message, frozen=True, kw_only=True):
    """All volumes of the pod are mounted."""

    host_paths: dict[str, str]
    """Path on the host by volume name, for the CRI mounts."""
    groups: tuple[int, ...] = ()
    """Annotated GIDs of persistent volumes, as supplemental groups of the containers."""
    relabel: tuple[str, ...] = ()
    """Volumes whose files the container runtime gives the containers' SELinux label, for the CRI mounts; sorted."""


class MountPod(Request[PodMounted], frozen=True, kw_only=True):
    """From pod_workers: mount every volume that the pod's containers use. Answered when all are mounted. Idempotent.

    Refused `FailedMount` with the kubelet's message when a volume fails: ask again, mounted volumes stay. `retry` is
    false for volumes that this agent does not support. Refused LIMIT_EXCEEDED when the node has its maximum of volumes:
    reject the pod. A repeat for mounted volumes makes no system call.
    """

    pod: Pod


class PodEnding(Message, frozen=True, kw_only=True):
    """From pod_workers: the pod ends. Its mounted volumes are still refreshed, but failures of that are no event.

    Its tokens stay valid for long hooks. Its objects are often deleted with it; the kubelet does not read them any more
    (findAndAddNewPods of pkg/kubelet/volumemanager/populator). A repeat is harmless. After a loss there are events.
    """

    pod_uid: str


class UnmountPod(Request[Done], frozen=True, kw_only=True):
    """Unmount every volume of the pod and remove their directories. Answered when done. Idempotent.

    From pod_workers after the last container has ended, and from container_gc for pods that a crash left. Refused
    `FailedUnMount` for mounts that are busy or not ours: ask again.
    """

    pod_uid: str


class SubPath(Record, frozen=True, kw_only=True):
    """A subPath that a container mounts."""

    index: int
    """Index of the volumeMount in the container."""
    volume: str
    volume_path: str
    """As PodMounted has it."""
    sub_path: str
    """Relative, with variables expanded."""


class SubPathsBound(Message, frozen=True, kw_only=True):
    """The mount source of each subPath, in the request's order."""

    host_paths: tuple[str, ...]


class BindSubPaths(Request[SubPathsBound], frozen=True, kw_only=True):
    """From pod_workers: bind-mount subPaths to places that containers cannot change. Idempotent.

    Sent before the container is created. UnmountPod removes the bind mounts. Refused `CreateContainerConfigError` with
    the kubelet's message when a subPath cannot be bound.
    """

    pod_uid: str
    container: str
    sub_paths: tuple[SubPath, ...]


class CheckVolumes(Request[Done], frozen=True, kw_only=True):
    """From pod_workers: check that mounted volumes answer, because the runtime would wait for a hung one for ever.

    Refused `FailedMount` with the names of hung volumes. VolumesMounted is sent when they answer again. A repeat is
    harmless.
    """

    pod_uid: str
    paths: dict[str, str]
    """By volume, from PodMounted."""


class VolumeFile(Message, frozen=True, kw_only=True):
    """A file's content."""

    data: bytes

    def __repr__(self) -> str:
        return f"VolumeFile({len(self.data)} bytes)"


class ReadVolumeFile(Request[VolumeFile], frozen=True, kw_only=True):
    """From pod_workers: read a file that a container wrote into a mounted volume. A repeat is harmless.

    Links out of the volume are not followed. Refused `CannotRead` for a missing or irregular file, one larger than
    `max_bytes`, and a volume that hangs.
    """

    pod_uid: str
    volume: str
    volume_path: str
    """As PodMounted has it."""
    path: str
    max_bytes: int


class VolumeUsage(Record, frozen=True, kw_only=True):
    """The usage of a volume, in bytes and inodes."""

    name: str
    used_bytes: int
    inodes_used: int
    local: bool
    """On the node's own disk; False for memory."""
    capacity_bytes: int = 0
    """Capacity of the volume's own file system or raw device; 0 without one, or when its driver reports none."""
    available_bytes: int = 0
    inodes: int = 0
    inodes_free: int = 0
    claim: str = ""
    """NAMESPACE/NAME of the PersistentVolumeClaim; empty: none."""


class PodVolumeUsage(Record, frozen=True, kw_only=True):
    """The usage of a pod's own volumes."""

    pod_uid: str
    time: float
    """Unix seconds of the measurement."""
    volumes: tuple[VolumeUsage, ...]


class VolumeUsages(Message, frozen=True, kw_only=True):
    """The usage of every pod with volumes, without pods whose volumes hang."""

    pods: tuple[PodVolumeUsage, ...] = ()


class GetVolumeUsages(Request[VolumeUsages], frozen=True, kw_only=True):
    """From stats: the usage of volumes, of at most volumeStatsAggPeriod of age. A repeat is harmless."""


class ObjectsChanged(Message, frozen=True, kw_only=True):
    """From objects: objects that pods refer to were added, changed or deleted; read them again. A repeat is harmless.

    `full`: any object may have changed, because one of the two actors started.
    """

    refs: tuple[ObjectRef, ...] = ()
    full: bool = False


class VolumesInUseReported(Message, frozen=True, kw_only=True):
    """From node: all volumes in use by the Node's status. Idempotent."""

    volumes: tuple[str, ...]
    """Unique names, as in proto.node.node.SetVolumesInUse."""
    number: int = 0
    """Of the SetVolumesInUse whose list was written; 0: the list was the Node's, and volume had told none."""
