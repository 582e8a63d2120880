"""What a helper process is asked to do to volumes, one record a step, and what comes of each.

The only words between the actor and its helpers. A step may be done again from any point: a helper is killed where it
stands. Data of files never shows in a repr: it may be a Secret's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from actors._host.files import paths
from actors.volume.csi.policy import PLUGIN, block_dir, file_name, target_dir
from actors.volume.steps.csi import CsiMount, CsiStep, DriverInfo, Volume
from actors.volume.steps.record import Record, Tagged
from proto.pods.volume import VolumeUsage

LOCAL_VOLUME, NFS = "kubernetes.io~local-volume", "kubernetes.io~nfs"
MOUNTED_PLUGINS = frozenset({LOCAL_VOLUME, NFS})
"""Plugins whose volumes are mounts of what outlives the pod: unmounted when it goes, never emptied."""

Medium = Literal["", "tmpfs", "hugetlbfs"]


class EmptyDir(Tagged, frozen=True):
    """Have a directory of the pod there, with a file system of its own on it for a medium other than ''."""

    uid: str
    plugin: str
    """Its directory's name, `kubernetes.io~empty-dir`; others wrap an emptyDir as the kubelet's do."""
    name: str
    medium: Medium = ""
    options: str = ""
    fs_group: int | None = None


class File(Record, frozen=True):
    """One file of a volume, by its relative path. `mode` is its permissions, `user` whose it is; None: root's."""

    path: str
    data: bytes
    mode: int
    user: int | None = None

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.data)} bytes, {self.mode:#o})"


class Files(Tagged, frozen=True):
    """Have the directory there with these files and no others, replaced together."""

    directory: EmptyDir
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        """The volume's."""
        return self.directory.name


class Mount(Tagged, frozen=True):
    """Have a remote file system mounted at the volume's directory in the pod, by mount(8)."""

    uid: str
    plugin: str
    name: str
    source: str
    fs_type: str
    options: tuple[str, ...] = ()


class Local(Tagged, frozen=True):
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


class Block(Tagged, frozen=True):
    """Have a link in the pod's directory to a block device of the node, which stays while the pod has it."""

    uid: str
    plugin: str
    name: str
    path: str


class ReleaseDevice(Tagged, frozen=True):
    """Unmount the disk of a persistent volume from where it is mounted for all pods, unless one still has it."""

    name: str


class HostPath(Tagged, frozen=True):
    """See that a path of the node is there and of its type; an empty type takes anything, but it has to answer."""

    name: str
    path: str
    type: str = ""


class SubPath(Tagged, frozen=True):
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


class ReadFile(Tagged, frozen=True):
    """Read a file inside a volume."""

    volume: str
    volume_path: str
    path: str
    max_bytes: int

    @property
    def name(self) -> str:
        """The volume's."""
        return self.volume


class TearDown(Tagged, frozen=True):
    """Unmount and delete the pod's volumes for at most `slice_s` seconds; `Outcome.more` when there is more to do."""

    uid: str
    slice_s: float

    @property
    def name(self) -> str:
        """Of no one volume; the helper notes which it is at."""
        return ""


class Measure(Tagged, frozen=True):
    """Say what the pod's own volumes take."""

    uid: str

    @property
    def name(self) -> str:
        """Of no one volume; the helper notes which it is at."""
        return ""


class MeasureMount(Tagged, frozen=True):
    """Say what the file system has that is mounted for a volume of somebody else's."""

    uid: str
    name: str
    path: str


SetUp: TypeAlias = EmptyDir | Files | HostPath | Mount | Local | Block | CsiMount
Step: TypeAlias = SetUp | ReleaseDevice | SubPath | ReadFile | TearDown | Measure | MeasureMount | CsiStep


def host_path(root: str, step: SetUp) -> str:
    """Where the volume is once the step is done."""
    match step:
        case EmptyDir() | Mount() | Local():
            return paths.volume_dir(root, step.uid, step.plugin, step.name)
        case Files():
            return host_path(root, step.directory)
        case HostPath():
            return step.path
        case Block():
            return paths.pod_device(root, step.uid, step.plugin, step.name)
        case CsiMount(volume) if volume.block:
            return paths.pod_device(root, volume.uid, PLUGIN, file_name(volume.spec_name))
        case CsiMount():
            return f"{target_dir(root, step.volume.uid, step.volume.spec_name)}/mount"


def map_places(root: str, step: SetUp) -> tuple[str, dict[str, str]]:
    """Of a raw device: the volume, and the directories it is passed into, by the kubelet's names; empty for others."""
    match step:
        case Block():
            uid, plugin, volume, shared = step.uid, step.plugin, step.name, local_block_dir(root, step.name)
        case CsiMount(one) if one.block:
            uid, plugin, volume = one.uid, PLUGIN, one.spec_name
            shared = f"{block_dir(root, one.spec_name)}/dev"
        case _:
            return "", {}
    return volume, {"globalMapPath": shared, "volumeMapPath": f"{paths.pod_devices_dir(root, uid)}/{plugin}"}


def local_block_dir(root: str, name: str) -> str:
    """Where the device of a local PersistentVolume is bound for its pods, by their UIDs."""
    return f"{root}/plugins/{LOCAL_VOLUME}/volumeDevices/{name}"


Growth = Literal["", "done", "refused", "failed", "infeasible"]
"""Of a driver's volume that was to grow; empty for one that was not, or whose driver has nothing to do for it."""


class Outcome(Record, frozen=True):
    """What came of one step. `error` is Go's text, as the kubelet shows it; empty when it is done."""

    error: str = ""
    stage: str = ""
    """How far it came, as in CannotMount; empty for the usual."""
    warning: str = ""
    """It is done, and the pod should know this."""
    grown: Growth = ""
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


class Unexpected(Tagged, frozen=True):
    """The helper failed in a way nobody expected: its traceback. It ends."""

    traceback: str


class Outcomes(Tagged, frozen=True):
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
