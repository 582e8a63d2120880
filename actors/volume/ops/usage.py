"""Measures a pod's own volumes: with statvfs where they are file systems, else by walking. Blocks.

Runs in a niced helper. Volumes whose data outlives the pod are not touched.
"""

from __future__ import annotations

import os
import time

from actors._host.files import mounts, paths
from actors._host.files.disk_use import MOST_USE, Walk
from actors._host.files.listing import names
from actors.volume.ops.removal import At
from actors.volume.steps.removal_rules import LOCAL_PLUGINS, MEMORY_FILE_SYSTEMS
from proto.pods.volume import VolumeUsage

WALK_S = 20.0
"""Deadline for one pod; an eviction that waits for the figures cannot wait longer."""


def measure_pod(root: str, uid: str, at: At) -> tuple[VolumeUsage, ...]:
    """Usage of each volume that lives and dies with the pod."""
    volumes = os.path.realpath(paths.pod_volumes_dir(root, uid))
    mounted = {mount.mount_point: mount.fs_type for mount in mounts.mounts_under(volumes)}
    deadline = time.monotonic() + WALK_S
    found = []
    for plugin in sorted(LOCAL_PLUGINS.intersection(names(volumes))):
        for name in names(f"{volumes}/{plugin}"):
            at(name)
            path = f"{volumes}/{plugin}/{name}"
            fs_type = mounted.get(path)
            if fs_type is None:
                use = Walk(deadline, progress=lambda name=name: at(name)).measure(path)  # type: ignore[misc]
                found.append(VolumeUsage(name=name, used_bytes=use.bytes, inodes_used=use.inodes, local=True))
            elif fs_type in MEMORY_FILE_SYSTEMS:
                found.append(file_system(name, path))
    return tuple(found)


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


def _bounded(figure: int) -> int:
    return max(0, min(MOST_USE, figure))
