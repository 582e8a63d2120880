"""Steps that set up, use, measure and remove volumes of the node.

A helper may be killed at any point, so every step can be repeated. File contents never show in a repr: they may be
Secrets.
"""

from __future__ import annotations

from typing import Literal

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


class Measure(Tagged, frozen=True):
    """Measure the pod's own volumes."""

    uid: str


class MeasureMount(Tagged, frozen=True):
    """Read the figures of a file system that is mounted for a volume which outlives the pod."""

    uid: str
    name: str
    path: str
