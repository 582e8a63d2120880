"""A queue of timers: it serves hundreds of probes and their deadlines with one timer of the bus."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

from actors._base.messaging.mailbox import MailboxActor, TimerHandle

_TOGETHER_S = 0.002
"""Entries that are due within this time run now, so that probes that began together cause one wake-up."""
_MIN_COMPACTED = 256


class TimerEntry:
    """An action at one monotonic time."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Drop the action."""
        self.action = None


class TimerQueue:
    """State: entries by due time. For the actor's thread only. Only an entry that is due first sets the bus's timer."""

    def __init__(self, actor: MailboxActor) -> None:
        self._actor = actor
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._order = itertools.count()
        self._compact_at = _MIN_COMPACTED
        self._timer: TimerHandle | None = None
        self._armed_for = float("inf")
        self.max_lateness_s = 0.0
        """Longest delay of an action after its due time, in seconds."""

    def at(self, due: float, action: Callable[[], None]) -> TimerEntry:
        """Run `action` in the actor's thread at `due`, monotonic seconds; at once when that is past."""
        entry = TimerEntry(action)
        if len(self._heap) >= self._compact_at:  # a probe with a long timeout leaves a cancelled deadline each period
            self._heap = [one for one in self._heap if one[2].action is not None]
            heapq.heapify(self._heap)
            self._compact_at = max(_MIN_COMPACTED, 2 * len(self._heap))
        heapq.heappush(self._heap, (due, next(self._order), entry))
        self._arm()
        return entry

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] >= self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = self._actor.after(self._armed_for - time.monotonic(), self._run)

    def _run(self) -> None:
        now = time.monotonic()
        # Take the due entries first: actions add entries, which must not keep this loop busy.
        due: list[tuple[float, int, TimerEntry]] = []
        while self._heap and self._heap[0][0] <= now + _TOGETHER_S:
            due.append(heapq.heappop(self._heap))
        for due_at, _, entry in due:
            action, entry.action = entry.action, None
            if action is not None:
                self.max_lateness_s = max(self.max_lateness_s, time.monotonic() - due_at)
                action()
        self._armed_for = float("inf")
        self._arm()
