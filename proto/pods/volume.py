"""Messages the volume actor receives, from pod_workers and objects; UnmountPod from container_gc too, for pods a crash
left."""

from __future__ import annotations

from proto.pods.objects import ObjectRef
from proto.v1 import Pod
from proto.wire.message import Done, Message, Record, Request

LIMIT_EXCEEDED = "VolumeAttachmentLimitExceeded"


class PodMounted(Message, frozen=True, kw_only=True):
    """Every volume of the pod is set up."""

    host_paths: dict[str, str]
    """Volume name to its path on the host, for the CRI mounts."""
    groups: tuple[int, ...] = ()
    """GIDs that the files of persistent volumes are said to belong to, which the containers need."""


class MountPod(Request[PodMounted], frozen=True, kw_only=True):
    """Set up every volume of the pod that its containers use; answered when all are.

    Refused with the kubelet's words (`FailedMount`) when one cannot be: ask again, what worked is kept (`retry` is
    false for what this agent cannot do). Refused LIMIT_EXCEEDED when the node has as many volumes as it takes: the pod
    is to be turned away. Idempotent, and without a system call once all is there.
    """

    pod: Pod


class UnmountPod(Request[Done], frozen=True, kw_only=True):
    """Tear down every volume of the pod and remove what its volumes left on disk. Answered when done. Idempotent.

    Only after the last container is gone. Refused (`FailedUnMount`) for what is busy or not ours to remove: ask again.
    """

    pod_uid: str


class SubPath(Record, frozen=True, kw_only=True):
    """A part of a volume that a container mounts."""

    index: int
    """Of the volumeMount in the container."""
    volume: str
    volume_path: str
    """As PodMounted has it."""
    sub_path: str
    """Relative; variables expanded."""


class SubPathsBound(Message, frozen=True, kw_only=True):
    """Where each is to be mounted from, in the order they were asked for."""

    host_paths: tuple[str, ...]


class BindSubPaths(Request[SubPathsBound], frozen=True, kw_only=True):
    """Bind parts of mounted volumes where no container can exchange them, before their container is created.

    Gone again with UnmountPod. Refused `CreateContainerConfigError` with the kubelet's words when one cannot be bound.
    Idempotent: what is bound to the same place stays.
    """

    pod_uid: str
    container: str
    sub_paths: tuple[SubPath, ...]


class LookAtVolumes(Request[Done], frozen=True, kw_only=True):
    """See that mounted volumes still answer, before the runtime gets them, which would wait for a dead one for ever.

    Refused `FailedMount`, naming those that do not; VolumesMounted tells when they do again. Harmless.
    """

    pod_uid: str
    paths: dict[str, str]
    """By volume, as PodMounted has them."""


class VolumeFile(Message, frozen=True, kw_only=True):
    """A file's content."""

    data: bytes

    def __repr__(self) -> str:
        return f"VolumeFile({len(self.data)} bytes)"


class ReadVolumeFile(Request[VolumeFile], frozen=True, kw_only=True):
    """Read a file that a container of the pod wrote into a mounted volume; no link leads out of the volume.

    Refused `CannotRead` for what is no regular file, larger than `max_bytes`, not there, or does not answer. Harmless.
    """

    pod_uid: str
    volume: str
    volume_path: str
    """As PodMounted has it."""
    path: str
    max_bytes: int


class VolumeUsage(Record, frozen=True, kw_only=True):
    """One volume that was measured, in bytes and inodes."""

    name: str
    used_bytes: int
    inodes_used: int
    local: bool
    """On the node's own disk; false for memory."""
    capacity_bytes: int = 0
    """Of a file system of its own; 0 without one."""
    available_bytes: int = 0
    inodes: int = 0
    inodes_free: int = 0
    claim: str = ""
    """NAMESPACE/NAME of the PersistentVolumeClaim behind it; empty without one."""


class PodVolumeUsage(Record, frozen=True, kw_only=True):
    """One pod's volumes, as far as they are the pod's own."""

    pod_uid: str
    time: float
    """Unix seconds of the measurement."""
    volumes: tuple[VolumeUsage, ...]


class VolumeUsages(Message, frozen=True, kw_only=True):
    """Of every pod with volumes. One whose volumes do not answer is left out."""

    pods: tuple[PodVolumeUsage, ...] = ()


class GetVolumeUsages(Request[VolumeUsages], frozen=True, kw_only=True):
    """What volumes take; measured anew where the last time is longer ago than volumeStatsAggPeriod. Harmless."""


class ObjectsChanged(Message, frozen=True, kw_only=True):
    """From objects: these came, changed or went, and some pod refers to them; read them again (`objects.GetObjects`).

    `full`: anything may have changed, since one of the two actors started anew. A repeat is harmless.
    """

    refs: tuple[ObjectRef, ...] = ()
    full: bool = False


class VolumesInUseReported(Message, frozen=True, kw_only=True):
    """From node: the Node's status says that these are in use. Idempotent; the list is complete."""

    volumes: tuple[str, ...]
    """Unique volume names, as in proto.node.node.SetVolumesInUse."""
