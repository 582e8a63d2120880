"""Counts the kernel's OOM kills in the cgroup of a container that has ended.

With the systemd driver the cgroup may be gone by then, because systemd removes a scope once it is empty. On cgroup v2
the parent's counter has the kills of removed children, too. An attribute of the parent's directory has the number that
ended containers account for; it lives as long as the counter. A container's own directory gets the attribute once its
kills are among them, while systemd has not removed it yet.
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
_begun: dict[str, set[str]] = {}
"""By parent: the directories of containers that this process has begun to start and not counted yet. With `_lock`."""


def begin(cgroup: str, tree: Hierarchy | None = None) -> None:
    """Before the container's start: earlier kills below its parent are not its own. Idempotent."""
    tree = tree or hierarchy()
    if not tree.unified:
        return
    directory = _directory(cgroup, tree)
    parent = os.path.dirname(directory)
    with _lock, contextlib.suppress(OSError):  # no parent yet: it starts with no kills
        _begun.setdefault(parent, set()).add(directory)
        if _accounted(parent) is None:
            _account(parent, _of_removed(parent))


def kills(cgroup: str, tree: Hierarchy | None = None, *, by_sigkill: bool = True) -> int:
    """The number of kills in the container's cgroup. Call it once, when the container has ended or failed to start.

    Containers of one pod whose cgroups are removed at the same moment cannot be told apart. Each that ended
    `by_sigkill` has one of their kills if there is one. The last one has the rest.
    """
    tree = tree or hierarchy()
    directory = _directory(cgroup, tree)
    if not tree.unified:
        return _kills(f"{directory}/memory.oom_control") or 0
    parent = os.path.dirname(directory)
    with _lock:
        others = _removed_beside(directory, parent)
        own = _kills(f"{directory}/memory.events")
        try:
            before = _accounted(parent) or 0
            if own is None:
                found = left = max(0, _of_removed(parent) - before)
                if others:
                    found = max(min(left, 1), left - others) if by_sigkill else 0
            else:
                found = own
                with contextlib.suppress(OSError):  # removed meanwhile
                    _account(directory, own)
            if found:
                _account(parent, before + found)
        except OSError:  # the parent is gone, or this process may set no such attribute
            return own or 0
    return found


def _removed_beside(directory: str, parent: str) -> int:
    """The number of other containers below the parent that are not counted yet and have no cgroup any more."""
    begun = _begun.get(parent, set())
    begun.discard(directory)
    if not begun:
        _begun.pop(parent, None)
    return sum(not os.path.isdir(other) for other in begun)


def _directory(cgroup: str, tree: Hierarchy) -> str:
    """The directory of the container's cgroup; of its scope where crun has made one more cgroup in that."""
    found = tree.path("memory", cgroup) or ""
    return os.path.dirname(found) if found.endswith(".scope/container") else found


def _kills(path: str) -> int | None:
    return figures.stat(path).get("oom_kill")


def _of_removed(parent: str) -> int:
    """Kills below `parent`, without those of cgroups directly below it that are not counted yet. Raises OSError."""
    found = 0
    for _ in range(_TRIES):
        total = _kills(f"{parent}/memory.events") or 0
        children = [entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
        found = total - sum(_uncounted(child) for child in children)
        if total == (_kills(f"{parent}/memory.events") or 0):
            break
    return max(0, found)


def _uncounted(child: str) -> int:
    counted = 0
    with contextlib.suppress(OSError):  # removed meanwhile: it has no events either
        counted = _accounted(child) or 0
    return max(0, (_kills(f"{child}/memory.events") or 0) - counted)


def _accounted(directory: str) -> int | None:
    with contextlib.suppress(ValueError):
        try:
            return int(os.getxattr(directory, ATTRIBUTE))
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
    return None


def _account(directory: str, number: int) -> None:
    os.setxattr(directory, ATTRIBUTE, str(number).encode())
