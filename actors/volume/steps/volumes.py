"""Steps that set up, use, measure and remove volumes of the node.

A helper may be killed at any point, so every step can be repeated. File contents never show in a repr: they may be
Secrets.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from actors._host.files.disk_use import DiskUse, Mark
from actors.volume.steps.record import Record, Tagged

Medium = Literal["", "tmpfs", "hugetlbfs"]


class EmptyDir(Tagged, frozen=True):
    """Create a directory for the pod. A medium other than '' mounts a file system on it."""

    uid: str
    plugin: str
    """Directory name, such as `kubernetes.io~empty-dir`. Other plugins wrap an emptyDir, as in the kubelet."""
    name: str
    medium: Medium = ""
    options: str = ""
    fs_group: int | None = None


class File(Record, frozen=True):
    """One file of a volume, by relative path. `mode` holds the permissions, `user` the owner's UID (None: root)."""

    path: str
    data: bytes
    mode: int
    user: int | None = None

    def __repr__(self) -> str:
        return f"File({self.path!r}, {len(self.data)} bytes, {self.mode:#o})"


class Files(Tagged, frozen=True):
    """Create the directory with exactly these files, replaced together."""

    directory: EmptyDir
    files: tuple[File, ...]
    mount_points: tuple[str, ...] = ()
    """Directories for the mounts of other volumes, by relative path. Containers cannot make them: it is read-only."""

    @property
    def name(self) -> str:
        """Volume name."""
        return self.directory.name


class Mount(Tagged, frozen=True):
    """Mount a remote file system at the volume's directory in the pod, by mount(8)."""

    uid: str
    plugin: str
    name: str
    source: str
    fs_type: str
    options: tuple[str, ...] = ()


class Local(Tagged, frozen=True):
    """Bind a directory or disk of the node to the volume's directory in the pod, and give it to the pod's group."""

    uid: str
    plugin: str
    name: str
    path: str
    volume_uid: str = ""
    """UID of the PersistentVolume."""
    fs_type: str = ""
    """File system of a disk; empty: ext4."""
    options: tuple[str, ...] = ()
    fs_group: int | None = None
    fs_group_policy: Literal["Always", "OnRootMismatch"] = "Always"


class Block(Tagged, frozen=True):
    """Link the pod's directory to a block device of the node, and hold the device while the pod has it."""

    uid: str
    plugin: str
    name: str
    path: str


class ReleaseDevice(Tagged, frozen=True):
    """Unmount the disk of a persistent volume from its global path, unless a pod still has it."""

    name: str


class HostPath(Tagged, frozen=True):
    """Check that a path of the node exists and has its type. An empty type accepts anything that answers."""

    name: str
    path: str
    type: str = ""


class SubPath(Tagged, frozen=True):
    """Bind a path inside a volume to a place that containers cannot exchange."""

    uid: str
    volume: str
    container: str
    index: int
    """Index of the volumeMount in the container."""
    volume_path: str
    sub_path: str

    @property
    def name(self) -> str:
        """Volume name."""
        return self.volume


class ReadFile(Tagged, frozen=True):
    """Read a file inside a volume."""

    volume: str
    volume_path: str
    path: str
    max_bytes: int

    @property
    def name(self) -> str:
        """Volume name."""
        return self.volume


class TearDown(Tagged, frozen=True):
    """Unmount and delete the pod's volumes for at most `slice_s` seconds. `Outcome.more` asks for another slice."""

    uid: str
    slice_s: float


class LongWalk(Record, frozen=True):
    """A walk through a volume that has more files than one measurement can count, for the next one to go on with."""

    inode: int
    """Of the volume's directory: a new directory is another volume."""
    seen: int = 0
    """Files and directories that this walk has counted; 0: the next measurement begins a walk."""
    so_far: DiskUse = DiskUse()
    """Their use."""
    last: DiskUse = DiskUse()
    """The count of the walk before, which holds until this one is through."""
    stalled: bool = False
    """The last measurement had little or no time left after it had skipped what is counted."""
    mark: Mark = Mark()
    """The entry at which this walk stopped."""


class Measure(Tagged, frozen=True):
    """Measure the pod's own volumes until `deadline`, a monotonic time for all steps of a batch."""

    uid: str
    deadline: float
    walks: dict[str, LongWalk] = {}
    """By volume, as the last measurement left them."""
    number: int = 0
    """Of the measurement, for `in_order`."""


def in_order(all_: list[str], long: Collection[str], number: int) -> list[str]:
    """The pods, or the volumes of a pod, in the order of a measurement, given its number. Pure.

    `long` walks come last, since those would leave little time to the others. Another one is the first of them each
    time, as it gets most.
    """
    last = [one for one in all_ if one in long]
    turn = number % len(last) if last else 0
    return [one for one in all_ if one not in long] + last[turn:] + last[:turn]


class MeasureMount(Tagged, frozen=True):
    """Read the figures of a file system that is mounted for a volume which outlives the pod, or of its raw device."""

    uid: str
    name: str
    path: str
    block: bool = False
    """A raw device (volumeMode Block)."""
