"""Measures a pod's own volumes: with statvfs where they are file systems, else by walking. Blocks.

Runs in a niced helper, which ends after one measurement of all pods. Volumes whose data outlives the pod are not
touched. A pod may make more files than one measurement can count. Then the next ones go on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from actors._host.files import mounts, paths
from actors._host.files.disk_use import MOST_USE, DiskUse, Walk
from actors._host.files.listing import names
from actors.volume.ops.removal import At
from actors.volume.steps.removal_rules import LOCAL_PLUGINS, MEMORY_FILE_SYSTEMS
from actors.volume.steps.volumes import LongWalk, Measure, in_order
from proto.pods.volume import VolumeUsage

_SHARE, _SHARE_LONG, _SHARE_STALLED = 1 / 2, 1 / 4, 3 / 4
"""Shares of the time that is left, which no number of volumes uses up.

In this order: for a walk; for a long walk that goes on; for a long walk that did little but skip the last time.
"""
_LITTLE, _NOTHING = 1 / 4, 1 / 64
"""Of the entries to skip: after fewer further ones the next measurement has more time, or begins another walk."""
_ENOUGH_S = 4.0
"""A walk that had less time, since others were before it, goes on when it is the first one."""


def measure_pod(root: str, step: Measure, at: At) -> tuple[tuple[VolumeUsage, ...], dict[str, LongWalk]]:
    """Usage of each volume that lives and dies with the pod, and the long walks by volume."""
    volumes = os.path.realpath(paths.pod_volumes_dir(root, step.uid))
    mounted = {mount.mount_point: mount.fs_type for mount in mounts.mounts_under(volumes)}
    found, walks = [], {}
    plugins = sorted(LOCAL_PLUGINS.intersection(names(volumes)))
    places = {name: f"{volumes}/{plugin}/{name}" for plugin in plugins for name in names(f"{volumes}/{plugin}")}
    for name in in_order(list(places), step.walks, step.number):
        at(name)
        fs_type = mounted.get(places[name])
        if fs_type is None:
            before, progress = step.walks.get(name), partial(at, name)
            use, walk = walked(places[name], before, step.deadline, progress)
            found.append(VolumeUsage(name=name, used_bytes=use.bytes, inodes_used=use.inodes, local=True))
            if walk is not None:
                walks[name] = walk
        elif fs_type in MEMORY_FILE_SYSTEMS:
            found.append(file_system(name, places[name]))
    return tuple(found), walks


def walked(
    path: str, before: LongWalk | None, deadline: float, progress: Callable[[], object]
) -> tuple[DiskUse, LongWalk | None]:
    """The use of a directory, and where its long walk stands now; None when one measurement can count all of it.

    While a long walk is not through, the use is the count of the walk before, or the one so far, if that is larger.
    Each walk ends, so the count has deleted files for two walks at most.
    """
    try:
        inode = os.lstat(path).st_ino
    except OSError:
        return DiskUse(), None
    share = _SHARE if before is None else _SHARE_STALLED if before.stalled else _SHARE_LONG
    now = time.monotonic()
    until = now + (deadline - now) * share
    if before is None or before.inode != inode:
        before = LongWalk(inode)
    walk = Walk(until, progress=progress, to_skip=before.seen, share_links=True, mark=before.mark)
    use = before.so_far.plus(walk.measure(path))
    if walk.to_skip and not walk.late:  # there are fewer files now
        before = LongWalk(inode, last=before.last)
        walk = Walk(until, progress=progress, share_links=True)
        use = walk.measure(path)
    if not walk.late:
        return use, LongWalk(inode, last=use) if before.seen else None
    if not walk.seen:  # there was no time
        return before.last.most(use), before
    return _cut(walk, before, use, may_end=until - now >= _ENOUGH_S)


def _cut(walk: Walk, before: LongWalk, use: DiskUse, *, may_end: bool) -> tuple[DiskUse, LongWalk]:
    """The same for a walk that had too little time. `may_end`: it had about the most that it can get."""
    unsure = walk.to_skip or walk.to_find.inode  # what it counted may be what is counted already
    if unsure and not before.stalled:
        return before.last.most(before.so_far), replace(before, stalled=True)
    further = walk.seen - before.seen
    if may_end and (walk.to_skip or (before.stalled and further < before.seen * _NOTHING)):  # none gets further
        return use, LongWalk(before.inode, last=use)
    if walk.to_skip:
        return before.last.most(use), before
    stalled = further < before.seen * _LITTLE
    return before.last.most(use), LongWalk(before.inode, walk.seen, use, before.last, stalled, walk.mark)


def file_system(name: str, path: str) -> VolumeUsage:
    """Usage of a file system, by statvfs. Raises OSError; may hang with it.

    A driver of FUSE may report any numbers, also more free blocks than blocks.
    """
    figures = os.statvfs(path)
    return VolumeUsage(
        name=name,
        used_bytes=_bounded((figures.f_blocks - figures.f_bfree) * figures.f_frsize),
        inodes_used=_bounded(figures.f_files - figures.f_ffree),
        local=False,
        capacity_bytes=_bounded(figures.f_blocks * figures.f_frsize),
        available_bytes=_bounded(figures.f_bavail * figures.f_frsize),
        inodes=_bounded(figures.f_files),
        inodes_free=_bounded(figures.f_ffree),
    )


def raw_device(name: str, path: str) -> VolumeUsage:
    """The size of a block device, its only figure. Raises OSError; may hang with it."""
    device = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.lseek(device, 0, os.SEEK_END)
    finally:
        os.close(device)
    return VolumeUsage(name=name, used_bytes=0, inodes_used=0, local=False, capacity_bytes=size)


def _bounded(figure: int) -> int:
    return max(0, min(MOST_USE, figure))
