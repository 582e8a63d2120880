"""What a helper process is asked to do to volumes, one record a step, and what comes of each.

The only words between the actor and its helpers. A step may be done again from any point: a helper is killed where it
stands. Data of files never shows in a repr: it may be a Secret's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from actors._host import paths
from actors.volume.csi.policy import target_dir
from actors.volume.csi.steps import CsiMount, CsiStep, DriverInfo, Volume
from proto.volume import VolumeUsage

LOCAL_VOLUME, NFS = "kubernetes.io~local-volume", "kubernetes.io~nfs"
MOUNTED_PLUGINS = frozenset({LOCAL_VOLUME, NFS})
"""Plugins whose volumes are mounts of what outlives the pod: unmounted when it goes, never emptied."""

Medium = Literal["", "tmpfs", "hugetlbfs"]


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value inside steps."""


class EmptyDir(Record, frozen=True, tag=True, tag_field="step"):
    """Have a directory of the pod there, with a file system of its own on it for a medium other than ''."""

    uid: str
    plugin: str
    """Its directory's name, `kubernetes.io~empty-dir`; others wrap an emptyDir as the kubelet's do."""
    name: str
    medium: Medium = ""
    options: str = ""
    fs_group: int | None = None


class File(Record, frozen=True):
    """One file of a volume, by its relative path. `mode` is its permissions."""

    path: str
    data: bytes
    mode: int

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.data)} bytes, {self.mode:#o})"


class Files(Record, frozen=True, tag=True, tag_field="step"):
    """Have the directory there with these files and no others, replaced together."""

    directory: EmptyDir
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        """The volume's."""
        return self.directory.name


class Mount(Record, frozen=True, tag=True, tag_field="step"):
    """Have a remote file system mounted at the volume's directory in the pod, by mount(8)."""

    uid: str
    plugin: str
    name: str
    source: str
    fs_type: str
    options: tuple[str, ...] = ()


class Local(Record, frozen=True, tag=True, tag_field="step"):
    """Have a directory or disk of the node bound to the volume's directory in the pod, and given to the pod's group."""

    uid: str
    plugin: str
    name: str
    path: str
    fs_type: str = ""
    """Of a disk; empty: ext4."""
    options: tuple[str, ...] = ()
    fs_group: int | None = None
    fs_group_policy: Literal["Always", "OnRootMismatch"] = "Always"


class ReleaseDevice(Record, frozen=True, tag=True, tag_field="step"):
    """Unmount the disk of a persistent volume from where it is mounted for all pods, unless one still has it."""

    name: str


class HostPath(Record, frozen=True, tag=True, tag_field="step"):
    """See that a path of the node is there and of its type; an empty type takes anything, but it has to answer."""

    name: str
    path: str
    type: str = ""


class SubPath(Record, frozen=True, tag=True, tag_field="step"):
    """Bind a path inside a volume to where a container's mount may safely begin."""

    uid: str
    volume: str
    container: str
    index: int
    """Of the volumeMount in the container."""
    volume_path: str
    sub_path: str

    @property
    def name(self) -> str:
        """The volume's."""
        return self.volume


class ReadFile(Record, frozen=True, tag=True, tag_field="step"):
    """Read a file inside a volume."""

    volume: str
    volume_path: str
    path: str
    max_bytes: int

    @property
    def name(self) -> str:
        """The volume's."""
        return self.volume


class TearDown(Record, frozen=True, tag=True, tag_field="step"):
    """Unmount and delete the pod's volumes for at most `slice_s` seconds; `Outcome.more` when there is more to do."""

    uid: str
    slice_s: float

    @property
    def name(self) -> str:
        """Of no one volume; the helper notes which it is at."""
        return ""


class Measure(Record, frozen=True, tag=True, tag_field="step"):
    """Say what the pod's own volumes take."""

    uid: str

    @property
    def name(self) -> str:
        """Of no one volume; the helper notes which it is at."""
        return ""


SetUp: TypeAlias = EmptyDir | Files | HostPath | Mount | Local | CsiMount
Step: TypeAlias = SetUp | ReleaseDevice | SubPath | ReadFile | TearDown | Measure | CsiStep


def host_path(root: str, step: SetUp) -> str:
    """Where the volume is once the step is done."""
    match step:
        case EmptyDir() | Mount() | Local():
            return paths.volume_dir(root, step.uid, step.plugin, step.name)
        case Files():
            return host_path(root, step.directory)
        case HostPath():
            return step.path
        case CsiMount():
            return f"{target_dir(root, step.volume.uid, step.volume.spec_name)}/mount"


class Outcome(Record, frozen=True):
    """What came of one step. `error` is Go's text, as the kubelet shows it; empty when it is done."""

    error: str = ""
    stage: str = ""
    """How far it came, as in CannotMount; empty for the usual."""
    more: bool = False
    path: str = ""
    kept_pid: int = 0
    """A child of the helper that did not return and cannot be killed."""
    kept_since: float = 0.0
    """Unix seconds."""
    usages: tuple[VolumeUsage, ...] = ()
    csi: tuple[Volume, ...] = ()
    driver: DriverInfo | None = None
    data: bytes = b""

    def __repr__(self) -> str:
        return f"Outcome(error={self.error!r}, more={self.more}, path={self.path!r}, {len(self.data)} bytes)"


class Unexpected(Record, frozen=True, tag=True, tag_field="step"):
    """The helper failed in a way nobody expected: its traceback. It ends."""

    traceback: str


class Outcomes(Record, frozen=True, tag=True, tag_field="step"):
    """One for each step, in order."""

    outcomes: tuple[Outcome, ...]


_requests = msgspec.msgpack.Decoder(tuple[Step, ...])
_answers = msgspec.msgpack.Decoder(Outcomes | Unexpected)


def encode(what: tuple[Step, ...] | Outcomes | Unexpected) -> bytes:
    """As it crosses the socket."""
    return msgspec.msgpack.encode(what)


def decode_steps(packet: bytes) -> tuple[Step, ...]:
    """What `encode` made of steps."""
    return _requests.decode(packet)


def decode_answer(packet: bytes) -> Outcomes | Unexpected:
    """What `encode` made of an answer."""
    answer: Outcomes | Unexpected = _answers.decode(packet)
    return answer
