"""Notices new pods by their directories, so that a look asks pod_workers only when there may be one.

A pod's directory is made before its processes start. Directories of earlier pods may be there already, as after a
restart: the watch counts only once pod_workers has named the pod of each directory.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping
from typing import TypeVar

from inotify_simple import INotify, flags

from proto.pods.pod_workers import PodWorkerStates

T = TypeVar("T")

SURE_S = 60.0
"""A change that inotify does not report is found so late."""
_MADE = flags.CREATE | flags.MOVED_TO
_EVENTS = _MADE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
_REMOVED = ".removed-"
"""Begin of the names of what is being removed."""


class NewPods:
    """Watches the directory of pods' directories. Safe from two threads: a call may hang on the disk."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        self._inotify: INotify | None = None
        self._watch_number = 0
        self._sure_until = 0.0
        self._doubted_at = 0.0

    def doubt(self) -> None:
        """Be unsure until pods are listed again: pod_workers has started, and begins pods in their old directories."""
        self._sure_until, self._doubted_at = 0.0, time.monotonic()

    def may_be(self) -> bool:
        """True when there may be pods that are not `seen` yet. Does not wait for the disk."""
        if not self._one_at_a_time.acquire(blocking=False):
            return True
        try:
            return self._may_be(time.monotonic())
        finally:
            self._one_at_a_time.release()

    def _may_be(self, now: float) -> bool:
        if self._inotify is None or now >= self._sure_until:
            return True
        events = self._inotify.read(timeout=0)
        if any(event.mask & ~(_MADE | flags.ISDIR) for event in events):
            self._close()  # the directory itself has gone, or events are lost
        if events:
            self._sure_until = 0.0
        return bool(events)

    def directories(self) -> frozenset[str] | None:
        """Watch, then return the names of pods' directories. Blocks on the disk.

        None when the disk fails, or while another call hangs there.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            return None
        try:
            self._watch()
            with os.scandir(self._directory) as entries:
                found = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            self._close()
            return None
        finally:
            self._one_at_a_time.release()
        return frozenset(name for name in found if not name.startswith(_REMOVED))

    def _watch(self) -> None:
        """Watch the directory that has the path now: a mount or a renamed parent replaces it without an event."""
        if self._inotify is not None:
            if self._inotify.add_watch(self._directory, _EVENTS) == self._watch_number:
                return
            self._close()
        made = INotify(nonblocking=True)
        try:
            self._watch_number = made.add_watch(self._directory, _EVENTS)
        except OSError:
            made.close()
            raise
        self._inotify = made

    def seen(self, began: float, *, everyone: bool) -> None:
        """Pods were listed by a request from this monotonic time. `everyone`: all that have a directory."""
        self._sure_until = began + SURE_S if everyone and began >= self._doubted_at else 0.0

    def _close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None


def names_everyone(answer: PodWorkerStates, directories: Collection[str] | None) -> bool:
    """True when only a pod whose directory is made later is not in the answer. `directories`: None if unknown."""
    uids = {worker.uid for worker in answer.pods}
    return answer.sources_ready and directories is not None and uids.issuperset(directories)


def still_there(known: Mapping[str, T], answer: PodWorkerStates, directories: Collection[str] | None) -> dict[str, T]:
    """Return what is known of pods that may be on the node. Others may be missing in an incomplete answer."""
    uids = {worker.uid for worker in answer.pods}
    if not answer.sources_ready:
        return dict(known)
    return {uid: one for uid, one in known.items() if uid in uids or uid in (directories or ())}
