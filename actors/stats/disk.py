"""How much pods' logs and local volumes take, by walking their directories.

Runs in a thread of its own that yields to everything else on the node, and gives up at a deadline and at a number of
entries: what was counted until then is the answer. Never leaves the file system it begins on, so memory-backed and
remote volumes do not count. Blocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time

from actors.stats.policy import DiskUse, PodDisk

log = logging.getLogger(__name__)

MAX_ENTRIES = 500_000
NICEST = 19
_BLOCK = 512
"""st_blocks counts these, whatever the file system's own blocks are (stat(2))."""


def yield_to_others() -> None:
    """Give this thread the lowest CPU priority. For a thread that does nothing else afterwards."""
    with contextlib.suppress(OSError):  # refused in some containers; then it is merely not nice
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)  # on Linux, 0 is the calling thread


class Walk:
    """One walk with its bounds; counts a file with several names once."""

    def __init__(self, deadline: float, max_entries: int = MAX_ENTRIES) -> None:
        """`deadline`: monotonic time at which to stop."""
        self.deadline = deadline
        self.left = max_entries
        self.cut_short = False
        self._links: set[tuple[int, int]] = set()

    def measure(self, path: str) -> DiskUse:
        """What `path` and all below it on its file system take; nothing where it is not there."""
        try:
            top = os.lstat(path)
        except OSError:
            return DiskUse()
        total_blocks, inodes = self._count(top), 1
        pending = [path] if os.path.isdir(path) and not os.path.islink(path) else []
        while pending and not self._is_over():
            try:
                entries = os.scandir(pending.pop())
            except OSError:
                continue  # removed meanwhile, or not ours to read
            with entries:
                for entry in entries:
                    self.left -= 1
                    try:
                        status = entry.stat(follow_symlinks=False)
                        is_dir = entry.is_dir(follow_symlinks=False)
                    except OSError:
                        continue
                    if status.st_dev != top.st_dev:
                        continue
                    blocks = self._count(status)
                    inodes += blocks >= 0
                    total_blocks += max(0, blocks)
                    if is_dir:
                        pending.append(entry.path)
        return DiskUse(total_blocks * _BLOCK, inodes)

    def _count(self, status: os.stat_result) -> int:
        """Blocks; -1 for another name of a file already counted."""
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._links:
                return -1
            self._links.add(key)
        return status.st_blocks

    def _is_over(self) -> bool:
        over = self.left <= 0 or time.monotonic() > self.deadline
        if over and not self.cut_short:
            self.cut_short = True
            log.warning("cannot count all of the pods' files in time; ranking pods by what was counted")
        return over


def pod_disks(root_dir: str, pod_logs_dir: str, deadline: float) -> dict[str, PodDisk]:
    """Logs and volumes of every pod that has any, by UID."""
    yield_to_others()
    walk = Walk(deadline)
    found: dict[str, PodDisk] = {}
    pods = f"{root_dir}/pods"
    home = _device(pods)
    for uid in _names(pods):
        volumes = DiskUse()
        for plugin in _names(f"{pods}/{uid}/volumes"):
            for volume in _names(f"{pods}/{uid}/volumes/{plugin}"):
                path = f"{pods}/{uid}/volumes/{plugin}/{volume}"
                if _device(path) == home:  # anything mounted there is not of this disk
                    volumes = volumes.plus(walk.measure(path))
        found[uid] = PodDisk(volumes=volumes)
    for name in _names(pod_logs_dir):
        uid = name.rpartition("_")[2]
        logs = {
            container: walk.measure(f"{pod_logs_dir}/{name}/{container}")
            for container in _names(f"{pod_logs_dir}/{name}")
        }
        found[uid] = PodDisk(logs=logs, volumes=found.get(uid, PodDisk()).volumes)
    return found


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _device(path: str) -> int:
    try:
        return os.lstat(path).st_dev
    except OSError:
        return -1
