"""The queue of pods with a pending write at the API server: order, coalescing and back-off. Pure; time is handed in.

A key is queued once, however often its pod changes, so each write carries the latest state. A failure of one key delays
that key only. A failure of every call (no server, 429, refused credentials) stops the queue; one call then tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from proto.common.backoff import Backoff

MAX_CALLS = 2
"""Calls at one time. More only wait for each other in the server's queue."""
GATHER_S = 0.1
"""Delay of writes of low priority, to gather more changes of the pod: a start makes several within a moment."""
FIRST_S, CAP_S, REFUSED_CAP_S = 0.25, 5.0, 30.0
"""Back-off of one key after a failure; REFUSED_CAP_S where a repeat is unlikely to succeed (403, 422)."""
OUTAGE = Backoff(0.1, cap_s=2.0)
"""Back-off of the whole queue. It is short, so that a server that is back is noticed soon."""
THROTTLED_S = 1.0
"""After a 429 without Retry-After."""
MOST_STALE = 64
"""Outdated items in the heaps, beside as many as keys wait, before they are made anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One queued key."""

    priority: int
    since: float
    not_before: float


class WriteQueue:
    """State: the queued keys, the keys with a call under way, and the back-off of each key and of all."""

    def __init__(self) -> None:
        self._waiting: dict[str, Entry] = {}
        self._due: list[tuple[int, float, str]] = []
        """A heap of (priority, since, key). An item that differs from its key's entry is outdated, in `_later` too."""
        self._later: list[tuple[float, str]] = []
        """A heap of (not_before, key), of keys that were not due at the last look."""
        self._active: dict[str, float] = {}
        """Keys with a call under way, and the time since when they were queued."""
        self._again: dict[str, Entry] = {}
        """Active keys that changed during their call."""
        self._fresh: set[str] = set()
        """Active keys whose change may explain a refusal of their call."""
        self._failures: dict[str, tuple[int, float]] = {}
        """Failures in a row, and the end of the back-off."""
        self._outages = 0
        self._hold_until = 0.0
        self._throttled_until = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._active)

    @property
    def _max_calls(self) -> int:
        return 1 if self._outages else MAX_CALLS

    def since(self, key: str) -> float:
        """The time since when an active key was queued."""
        return self._active[key]

    def held_s(self, now: float) -> float:
        """Seconds until the queue as a whole may go on; 0 when it may now."""
        return max(0.0, self._hold_until - now, self._throttled_until - now)

    def add(self, key: str, priority: int, now: float, *, gather_s: float = 0.0, fresh: bool = False) -> None:
        """Queue `key`. `fresh` ends its back-off: the cause of its last failure may be gone."""
        if fresh:
            self._failures.pop(key, None)
            if key in self._active:
                self._fresh.add(key)
        _, blocked_until = self._failures.get(key, (0, 0.0))
        entries = self._again if key in self._active else self._waiting
        since, not_before = now, now + gather_s
        if (old := entries.get(key)) is not None:
            since, not_before = old.since, min(old.not_before, not_before)
        entry = Entry(priority, since, max(not_before, blocked_until))
        if entries is self._waiting:
            self._put(key, entry)
        else:
            self._again[key] = entry

    def forget(self, key: str) -> None:
        """Drop `key`: it needs no write any more."""
        self._waiting.pop(key, None)
        self._again.pop(key, None)
        self._failures.pop(key, None)

    def take(self, now: float) -> str | None:
        """Make the next key active and return it; None when none may go now.

        The caller ends the call with `succeeded`, `unneeded`, `refused` or `unavailable`.
        """
        if len(self._active) >= self._max_calls or self.held_s(now) > 0:
            return None
        self._look(now)
        if not self._due:
            return None
        _, since, key = heappop(self._due)
        del self._waiting[key]
        self._active[key] = since
        return key

    def wait_s(self, now: float) -> float | None:
        """Seconds until a key may be due; None when none waits or the end of a call decides."""
        if not self._waiting or len(self._active) >= self._max_calls:
            return None
        self._look(now)
        return self.held_s(now) if self._due else max(self.held_s(now), self._later[0][0] - now)

    def _put(self, key: str, entry: Entry) -> None:
        """Let `key` wait, in place of what it waited for."""
        if self._waiting.get(key) == entry:
            return
        self._waiting[key] = entry
        heappush(self._later, (entry.not_before, key))
        if len(self._due) + len(self._later) > 2 * len(self._waiting) + MOST_STALE:
            self._due = []
            self._later = [(one.not_before, other) for other, one in self._waiting.items()]
            heapify(self._later)

    def _look(self, now: float) -> None:
        """Move keys to `_due` when their time has come, and drop outdated items, so that both heaps have a true top."""
        while self._later:
            not_before, key = self._later[0]
            entry = self._waiting.get(key)
            if entry is not None and entry.not_before == not_before:
                if not_before > now:
                    break
                heappush(self._due, (entry.priority, entry.since, key))
            heappop(self._later)
        while self._due:
            priority, since, key = self._due[0]
            entry = self._waiting.get(key)
            if entry is not None and (entry.priority, entry.since) == (priority, since):
                if entry.not_before <= now:
                    break
                heappush(self._later, (entry.not_before, key))
            heappop(self._due)

    def succeeded(self, key: str, priority: int, now: float) -> None:
        """The server took the write. The key is queued once more, as there may be a next step."""
        self._outages = 0
        self.unneeded(key)
        if key not in self._waiting:
            self._put(key, Entry(priority, now, now))

    def unneeded(self, key: str) -> None:
        """There was nothing to write."""
        self._failures.pop(key, None)
        self._end(key)

    def refused(self, key: str, priority: int, now: float, wait_s: float | None = None, cap_s: float = CAP_S) -> None:
        """The server refused this write only. The key waits `wait_s`, else exponentially up to `cap_s`."""
        self._outages = 0
        count = self._failures.get(key, (0, 0.0))[0] + 1
        delay_s = Backoff(FIRST_S, cap_s=cap_s).delay_s(count) if wait_s is None else wait_s
        if key in self._fresh:
            delay_s = min(delay_s, FIRST_S)
        self._failures[key] = (count, now + delay_s)
        self._requeue(key, priority, now)

    def unavailable(
        self, key: str, priority: int, now: float, jitter: float, retry_after_s: float | None = None
    ) -> None:
        """Any call would have failed: stop the queue. `jitter`, 0 to 1, keeps nodes from coming back in step."""
        spread = 0.75 + jitter / 2
        self._outages += 1
        self._hold_until = now + OUTAGE.delay_s(self._outages) * spread
        if retry_after_s is not None:
            self._throttled_until = max(self._throttled_until, now + retry_after_s * max(1.0, spread))
        self._requeue(key, priority, now)

    def drained(self) -> None:
        """The queue is empty: the outage counts as over."""
        self._outages = 0

    def server_answered(self) -> None:
        """The server answered another client: try at once, but keep a Retry-After."""
        self._hold_until = 0.0

    def _requeue(self, key: str, priority: int, now: float) -> None:
        self._end(key)
        self.add(key, priority, now)

    def _end(self, key: str) -> None:
        self._active.pop(key, None)
        self._fresh.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self._put(key, again)
