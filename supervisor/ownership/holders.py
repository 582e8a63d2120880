"""Finds the processes that hold our locks, and locked cgroups above or below ours.

/proc/locks names the holder of each lock by device and inode. It leaves out processes of other pid namespaces.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from actors._cgroup.hierarchy import own_cgroups
from supervisor.ownership import processes
from supervisor.ownership.places import Place
from supervisor.ownership.policy import LockedPlace, Process
from supervisor.ownership.processes import Inode

LOCKS = "/proc/locks"
MAX_LOCKS = 10_000
MAX_CGROUPS = 20_000
"""Limit of the search below our cgroup. It only runs when another lock on that hierarchy is held."""


def parse_locks(text: str) -> dict[Inode, int]:
    """The pid of every held exclusive flock, by inode."""
    found = {}
    for line in text.splitlines()[:MAX_LOCKS]:
        words = line.split()
        if len(words) < 6 or words[1:4:2] != ["FLOCK", "WRITE"]:  # a waiting lock has `->` as its second word
            continue
        try:
            major, minor, inode = words[5].split(":")
            found[Inode(os.makedev(int(major, 16), int(minor, 16)), int(inode))] = int(words[4])
        except ValueError:
            continue
    return found


def locked() -> dict[Inode, int]:
    """The pids of this machine's locks by inode; empty if /proc/locks cannot be read."""
    try:
        return parse_locks(Path(LOCKS).read_text())
    except OSError:
        return {}


def holder(place: Place, locks: Mapping[Inode, int]) -> Process | None:
    """The process that has locked the place; None if it is not visible."""
    inode = processes.inode_of(place.path)
    if inode is None:
        return None
    pid = locks.get(inode) or _by_descriptor(inode)
    return processes.describe(pid) if pid else None


def _by_descriptor(inode: Inode) -> int:
    """The pid of a supervisor that has it open. Some file systems show another device number in /proc/locks."""
    for pid in processes.pids():
        if pid != os.getpid() and processes.name(pid) == "supervisor":
            for link, _ in processes.descriptors(pid):
                if processes.inode_of(link) == inode:
                    return pid
    return 0


def overlapping(place: Place, name: str, locks: Mapping[Inode, int]) -> Iterator[LockedPlace]:
    """Locked cgroups that contain the cgroup `name` at `place`, or lie below it.

    An agent that runs in a pod of the other agent is left out: its pods belong to that pod.
    """
    inode = processes.inode_of(place.path)
    theirs = {one: pid for one, pid in locks.items() if inode and one.device == inode.device and one != inode}
    if inode is None or not theirs:
        return
    mount = place.path.removesuffix(name)
    above = os.path.dirname(place.path)
    while above.startswith(f"{mount}/"):
        pid = theirs.get(processes.inode_of(above) or inode)
        if pid and not _is_in(above.removeprefix(mount)):
            yield LockedPlace(place, processes.describe(pid), "contains")
        above = os.path.dirname(above)
    for below in _below(place.path):
        pid = theirs.get(processes.inode_of(below) or inode)
        if pid and not _is_in(name, pid):
            yield LockedPlace(place, processes.describe(pid), "is inside")


def _is_in(name: str, pid: int = 0) -> bool:
    """True if the process (0: this one) runs in a cgroup below `name`, in any hierarchy."""
    try:
        return any(one.startswith(f"{name}/") for one in own_cgroups(f"/proc/{pid or 'self'}/cgroup").values())
    except (OSError, ValueError):
        return False


def _below(top: str) -> Iterator[str]:
    waiting, seen = [top], 0
    while waiting and seen < MAX_CGROUPS:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        seen += len(found)
        waiting += found
        yield from found
