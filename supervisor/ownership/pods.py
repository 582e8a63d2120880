"""Finds pods that run: another agent's below our cgroup root, of which our root directory has no mark, and our own."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.names import QOS_CLASSES, pod_uid, qos_cgroup
from actors._host.files.own_pods import OwnPods, mark_pod
from actors._host.files.paths import checkpoints_dir, pods_dir
from proto.agent.settings import Settings
from proto.common import untrusted
from proto.common.machine import procfs
from supervisor.ownership import processes
from supervisor.ownership.policy import ForeignPod

MAX_CGROUPS = 1000
"""Limit of the search below one pod's cgroup."""
MAX_PIDS = 65_536
MAX_CONTAINERS = 100_000
MAX_STARTED = 256
"""Limit in bytes of a container's file `started`."""
DRIVERS = ("cgroupfs", "systemd")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def foreign(settings: Settings, tree: Hierarchy, own: Collection[int]) -> Iterator[ForeignPod]:
    """Find pods that are not ours and have a living process. Empty cgroups and the processes `own` do not count.

    Raises OSError when the marks of our pods cannot be read.
    """
    if not settings.cgroups_per_qos:
        return
    found = _cgroups(settings.cgroup_driver, settings.cgroup_root, tree)
    ours = OwnPods(settings.root_dir).among(found)
    for uid, (name, paths) in sorted(found.items()):
        if uid not in ours and (pid := _living(paths, own)) is not None:
            yield ForeignPod(uid, name, pid, _command(pid))


def running_one(root_dir: str, cgroup_roots: Iterable[str], tree: Hierarchy, own: Collection[int]) -> str:
    """Describe a pod of ours that has a living process; empty when none has. Raises OSError as `foreign` does.

    Both drivers' names count: the driver may have changed since the pod started.
    """
    for root in dict.fromkeys(cgroup_roots):
        for driver in DRIVERS:
            found = _cgroups(driver, root, tree)
            for uid in sorted(OwnPods(root_dir).among(found)):
                if (pid := _living(found[uid][1], own)) is not None:
                    return f"pod {uid}, pid {pid} {_command(pid)}"
    return ""


def marked_one(root_dir: str) -> str:
    """Describe a pod of ours that may run without a cgroup of its own; empty without one."""
    try:
        with os.scandir(pods_dir(root_dir)) as entries:
            uid = min((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), default="")
    except OSError:
        return ""
    return f"pod {uid} may run: without cgroupsPerQOS no cgroup tells" if uid else ""


def embedded_one(root_dir: str) -> str:
    """Describe a running container of the embedded runtime, by its records; empty when none runs.

    At isolation level 3 its pods have no cgroups.
    """
    try:
        with os.scandir(Path(checkpoints_dir(root_dir), "runtime", "containers")) as entries:
            directories = [entry.path for entry in itertools.islice(entries, MAX_CONTAINERS)]
    except OSError:
        return ""
    for directory in sorted(directories):
        pid, ticks = _started(directory)
        if pid > 0 and processes.alive(pid) and procfs.start_time(pid) == ticks:
            return f"container {os.path.basename(directory):.13} of the embedded runtime, pid {pid} {_command(pid)}"
    return ""


def _started(directory: str) -> tuple[int, int]:
    """Pid and start time of the container's process, as the runtime's monitor has written them; zeros without them."""
    try:
        words = untrusted.read_file(Path(directory, "started"), MAX_STARTED).split()
        return int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _command(pid: int) -> str:
    return processes.name(pid) if pid else "in another pid namespace"


def _cgroups(driver: str, cgroup_root: str, tree: Hierarchy) -> dict[str, tuple[str, list[str]]]:
    """The cgroup of each pod by UID, and its directory in each hierarchy."""
    found: dict[str, tuple[str, list[str]]] = {}
    for qos in QOS_CLASSES:
        above = qos_cgroup(driver, cgroup_root, qos)
        for directory in tree.paths(above):
            try:
                names = os.listdir(directory)
            except OSError:
                continue
            for name in names:
                uid = pod_uid(driver, name)
                if _UID.fullmatch(uid):
                    found.setdefault(uid, (f"{above}/{name}", []))[1].append(f"{directory}/{name}")
    return found


def _living(paths: Iterable[str], own: Collection[int]) -> int | None:
    """The pid of a process in or below one of the cgroups; 0 if it has no pid here, None if all are empty."""
    for top in paths:
        for directory, below, _ in os.walk(top):
            del below[MAX_CGROUPS:]
            for pid in _pids(directory):
                if pid not in own and (not pid or processes.alive(pid)):
                    return pid
    return None


def _pids(directory: str) -> list[int]:
    try:
        with Path(directory, "cgroup.procs").open(encoding="ascii") as file:
            return [int(line) for line, _ in zip(file, range(MAX_PIDS), strict=False)]
    except (OSError, ValueError):
        return []


def adopt(root_dir: str, uids: Iterable[str]) -> None:
    """Mark pods as ours in the root directory. All later starts and all actors know the mark. Raises OSError."""
    for uid in uids:
        mark_pod(root_dir, uid)
