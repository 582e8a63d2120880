"""Finds pods of another agent: they run below our cgroup root, and our root directory has no mark of them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.names import QOS_CLASSES, pod_uid, qos_cgroup
from actors._host.files.own_pods import OwnPods, mark_pod
from proto.agent.settings import Settings
from supervisor.ownership import processes
from supervisor.ownership.policy import ForeignPod

MAX_CGROUPS = 1000
"""Limit of the search below one pod's cgroup."""
MAX_PIDS = 65_536
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def foreign(settings: Settings, tree: Hierarchy, own: Collection[int]) -> Iterator[ForeignPod]:
    """Find pods that are not ours and have a living process. Empty cgroups and the processes `own` do not count.

    Raises OSError when the marks of our pods cannot be read.
    """
    if not settings.cgroups_per_qos:
        return
    found = _cgroups(settings, tree)
    ours = OwnPods(settings.root_dir).among(found)
    for uid, (name, paths) in sorted(found.items()):
        if uid not in ours and (pid := _living(paths, own)) is not None:
            yield ForeignPod(uid, name, pid, processes.name(pid) if pid else "in another pid namespace")


def _cgroups(settings: Settings, tree: Hierarchy) -> dict[str, tuple[str, list[str]]]:
    """The cgroup of each pod by UID, and its directory in each hierarchy."""
    found: dict[str, tuple[str, list[str]]] = {}
    driver = settings.cgroup_driver
    for qos in QOS_CLASSES:
        above = qos_cgroup(driver, settings.cgroup_root, qos)
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
