"""Mount points of other volumes in the volumes of files of a pod. Pure.

Such a volume is read-only in containers, so that the runtime cannot make them. Source: getNestedMountpoints of
pkg/volume/util, which goes through all mounts of the pod for each volume, in a goroutine of that volume. The mailbox
thread serves all pods, so one pass finds the points of all volumes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from actors.volume.plugins.base import CannotMount
from actors.volume.plugins.payload import clean_path
from proto.common.safe_text import clipped, one_line
from proto.v1 import Pod, VolumeMount

_MOST, _DEEPEST = 1000, 64
"""Mount points of one pod, and their depth: a manifest could ask for millions of directories."""


@dataclass(frozen=True)
class PodMountPoints:
    """The mount points in the volumes of one pod."""

    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Relative paths in each volume, sorted, by its name."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Volumes that the kubelet refuses to set up because of their own mountPath, with its message."""
    left_out: str = ""
    """Message about points that are not made, which names the first; empty when all are."""

    def of(self, volume: str, *, mounted: bool) -> tuple[str, ...]:
        """The points in one volume. Raises CannotMount, but not for a mounted volume, which running containers use.

        An ephemeral container can never be removed from its pod: a refusal would stop all later refreshes.
        """
        if volume in self.refused and not mounted:
            raise CannotMount(self.refused[volume], retry=False)
        return self.paths.get(volume, ())


def find_mount_points(pod: Pod, volumes: Collection[str]) -> PodMountPoints:
    """The paths in `volumes` where a container mounts something else.

    A mount below another one needs nothing: the outer volume has its own. A mount of a part of a volume of files counts
    for nothing either: its directory is replaced with the files.

    Points that cannot be made are left out, and the runtime tells what it cannot mount. Containers come in the order of
    their start, so that points of ephemeral ones never displace others.
    """
    found: dict[str, set[str]] = {}
    refused: dict[str, str] = {}
    left_out = ""
    looked_at: set[tuple[str, str]] = set()
    for volume, point in _nested_in_pod(pod, volumes, refused):
        if (volume, point) in looked_at:
            continue
        # Counted before they are checked: many volumes at one path have each mount below it as their point.
        full = len(looked_at) == _MOST
        looked_at.add((volume, point))
        problem = f"{_MOST} in a pod are the most" if full else _problem(point)
        if not problem:
            found.setdefault(volume, set()).add(point)
        left_out = left_out or _left_out(volume, point, problem)
        if full:
            break
    return PodMountPoints({volume: tuple(sorted(points)) for volume, points in found.items()}, refused, left_out)


def _nested_in_pod(pod: Pod, volumes: Collection[str], refused: dict[str, str]) -> Iterator[tuple[str, str]]:
    containers = (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
    own = [
        [mount for mount in container.volume_mounts if mount.name in volumes and _is_whole(mount)]
        for container in containers
    ]
    for mounts in own:
        for mount in mounts:
            clean = posixpath.normpath(mount.mount_path)
            if clean.startswith("../"):
                refused.setdefault(mount.name, f"invalid container mount point {clean}")
    for container, mounts in zip(containers, own, strict=True):
        if mounts:
            yield from _nested(container.volume_mounts, mounts)


def _nested(mounts: Iterable[VolumeMount], own: Iterable[VolumeMount]) -> Iterator[tuple[str, str]]:
    """Yield each volume of `own` with the relative path of each mount in it, without mounts below another one."""
    volumes: dict[str, dict[str, None]] = {}
    for mount in own:
        volumes.setdefault(_directory(mount.mount_path), {})[mount.name] = None
    outer: list[str] = []
    for point in sorted({_directory(mount.mount_path) for mount in mounts}):
        while outer and not point.startswith(outer[-1]):
            outer.pop()
        for volume in volumes.get(outer[-1], ()) if outer else ():
            yield volume, point[len(outer[-1]) : -1]
        outer.append(point)


def _directory(mount_path: str) -> str:
    """The path in a container, which is its own root: `..` stays below it.

    With the slash at its end it sorts directly before the paths below it, and only those begin with it.
    """
    return f"{posixpath.normpath('/' + mount_path.lstrip('/')).rstrip('/')}/"


def _is_whole(mount: VolumeMount) -> bool:
    return not mount.sub_path_expr and posixpath.normpath(mount.sub_path or ".") == "."


def _problem(point: str) -> str:
    """Why the point cannot be made; empty when it can. Names that begin with `..` belong to the volume's writer."""
    if point.count("/") >= _DEEPEST:
        return f"more than {_DEEPEST} directories deep"
    try:
        clean_path(point)
    except CannotMount as error:
        return str(error)
    return ""


def _left_out(volume: str, point: str, problem: str) -> str:
    if not problem:
        return ""
    where = f"{one_line(clipped(point))!r} in volume {one_line(volume)}"
    return f"cannot make some mount points, such as {where}: {one_line(clipped(problem))}; change the mountPath"
