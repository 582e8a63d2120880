"""Notices new pods by their directories, so that a look asks pod_workers only when there may be one."""

from __future__ import annotations

import time

from inotify_simple import INotify, flags

SURE_S = 60.0
"""A change that inotify does not report is found so late."""
_EVENTS = flags.CREATE | flags.MOVED_TO | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR


class NewPods:
    """Watches the directory of pods' directories. A pod's is made before its processes start."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._inotify: INotify | None = None
        self._sure_until = 0.0

    def may_be(self) -> bool:
        """True when there may be pods that are not `seen` yet. Does not wait for the disk."""
        if self._inotify is None or time.monotonic() >= self._sure_until:
            return True
        events = self._inotify.read(timeout=0)
        if any(event.mask & ~(flags.CREATE | flags.MOVED_TO | flags.ISDIR) for event in events):
            self.close()  # the directory itself has gone, or events are lost
        if events:
            self._sure_until = 0.0
        return bool(events)

    def begin(self) -> None:
        """Watch, before the pods are listed. Blocks on the disk. Without a watch each look asks."""
        if self._inotify is not None:
            return
        try:
            self._inotify = INotify(nonblocking=True)
            self._inotify.add_watch(self._directory, _EVENTS)
        except OSError:
            self.close()

    @property
    def watches(self) -> bool:
        """True when `begin` has nothing to do."""
        return self._inotify is not None

    def seen(self, began: float) -> None:
        """The pods were listed by a request of this monotonic time."""
        self._sure_until = began + SURE_S

    def close(self) -> None:
        """End the watch."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
