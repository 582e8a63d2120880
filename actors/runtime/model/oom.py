"""Counts the kernel's OOM kills in the cgroup of a container that has ended.

With the systemd driver the cgroup may be gone by then, because systemd removes a scope once it is empty. On cgroup v2
the parent's counter has the kills of removed children, too. An attribute of the parent's directory has the number that
ended containers account for; it lives as long as the counter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading

from actors._cgroup import figures
from actors._cgroup.hierarchy import Hierarchy, hierarchy

ATTRIBUTE = "trusted.nodevisor.oom_kills"
_TRIES = 5
"""Times to read counters that change meanwhile."""
_lock = threading.Lock()


def begin(cgroup: str, tree: Hierarchy | None = None) -> None:
    """Before the container's start: earlier kills below its parent are not its own. Idempotent."""
    tree = tree or hierarchy()
    parent = os.path.dirname(_directory(cgroup, tree))
    with _lock, contextlib.suppress(OSError):  # no parent yet: it starts with no kills
        if not tree.unified:
            return
        if _accounted(parent) is None:
            _account(parent, _of_removed(parent))


def kills(cgroup: str, tree: Hierarchy | None = None) -> int:
    """The number of kills in the container's cgroup. Call it once, when the container has ended.

    Containers of one pod that end at the same moment cannot be told apart: the first has the kills of all.
    """
    tree = tree or hierarchy()
    directory = _directory(cgroup, tree)
    if not tree.unified:
        return _kills(f"{directory}/memory.oom_control") or 0
    parent = os.path.dirname(directory)
    with _lock:
        own = _kills(f"{directory}/memory.events")
        try:
            before = _accounted(parent) or 0
            found = max(0, _of_removed(parent) - before) if own is None else own
            if found:
                _account(parent, before + found)
        except OSError:  # the parent is gone, or this process may set no such attribute
            return own or 0
    return found


def _directory(cgroup: str, tree: Hierarchy) -> str:
    """The directory of the container's cgroup; of its scope where crun has made one more cgroup in that."""
    found = tree.path("memory", cgroup) or ""
    return os.path.dirname(found) if found.endswith(".scope/container") else found


def _kills(path: str) -> int | None:
    return figures.stat(path).get("oom_kill")


def _of_removed(parent: str) -> int:
    """Kills below `parent` that no cgroup directly below it counts. Raises OSError."""
    found = 0
    for _ in range(_TRIES):
        total = _kills(f"{parent}/memory.events") or 0
        children = [entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
        found = total - sum(_kills(f"{child}/memory.events") or 0 for child in children)
        if total == (_kills(f"{parent}/memory.events") or 0):
            break
    return max(0, found)


def _accounted(parent: str) -> int | None:
    with contextlib.suppress(ValueError):
        try:
            return int(os.getxattr(parent, ATTRIBUTE))
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
    return None


def _account(parent: str, number: int) -> None:
    os.setxattr(parent, ATTRIBUTE, str(number).encode())
