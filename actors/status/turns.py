"""Whose turn it is, while the API server takes less than there is to say. Pure; time is handed in.

A key is in here once, however often it changes, so what is said is always the latest. What fails for one waits by
itself; what fails for all (no server, 429, refused credentials) holds everything up, and then one call tries the way.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 2
"""Calls at one time. More only wait for each other in the server's queue."""
GATHER_S = 0.1
"""What is of no hurry waits this long for more of its pod: a start is several changes within a moment."""
FIRST_S, CAP_S, REFUSED_CAP_S = 0.25, 5.0, 30.0
"""After failures of one key; the last where the server knows well what it refuses."""
TROUBLE_FIRST_S, TROUBLE_CAP_S = 0.1, 2.0
"""After failures that are everybody's: a server that is back is to be noticed in time."""
THROTTLED_S = 1.0
"""After a 429 that does not say how long."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One key's place."""

    order: int
    since: float
    not_before: float


class Turns:
    """Keys that have something to say."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._active: dict[str, float] = {}
        """Calls under way, and since when there was something to say."""
        self._again: dict[str, Turn] = {}
        """What has changed while its call is under way."""
        self._fresh: set[str] = set()
        """Of these, what may well be the reason for a refusal of that call."""
        self._failures: dict[str, tuple[int, float]] = {}
        """How often in a row, and until when it waits for that."""
        self._trouble = 0
        self._hold_until = 0.0
        self._throttled_until = 0.0

    def __len__(self) -> int:
        return len(self._turns) + len(self._active)

    def since(self, key: str) -> float:
        """Since when a key whose call is under way had something to say."""
        return self._active[key]

    def held_s(self, now: float) -> float:
        """For how long nobody has a turn."""
        return max(0.0, self._hold_until - now, self._throttled_until - now)

    def mark(self, key: str, order: int, now: float, *, gather_s: float = 0.0, fresh: bool = False) -> None:
        """There is something to say. `fresh`: what it failed for may be over, it need not wait for that any more."""
        if fresh:
            self._failures.pop(key, None)
            if key in self._active:
                self._fresh.add(key)
        _, blocked_until = self._failures.get(key, (0, 0.0))
        book = self._again if key in self._active else self._turns
        old = book.get(key)
        new = Turn(order, now, max(now + gather_s, blocked_until))
        if old is not None:
            new = Turn(order, old.since, max(min(old.not_before, new.not_before), blocked_until))
        book[key] = new

    def forget(self, key: str) -> None:
        """It has nothing to say any more."""
        self._turns.pop(key, None)
        self._again.pop(key, None)
        self._failures.pop(key, None)

    def take(self, now: float) -> str | None:
        """The key whose turn it is; `done` or `failed` ends it. None: nobody's now."""
        width = 1 if self._trouble else WIDTH
        if len(self._active) >= width or self.held_s(now) > 0:
            return None
        due = [(turn.order, turn.since, key) for key, turn in self._turns.items() if turn.not_before <= now]
        if not due:
            return None
        _, since, key = min(due)
        del self._turns[key]
        self._active[key] = since
        return key

    def wait_s(self, now: float) -> float | None:
        """Seconds until somebody may be due, should nothing happen before; None: nobody waits, or one is under way."""
        if not self._turns or len(self._active) >= (1 if self._trouble else WIDTH):
            return None
        return max(self.held_s(now), min(turn.not_before for turn in self._turns.values()) - now)

    def done(self, key: str, order: int, now: float) -> None:
        """It had its say, and the server took it. Looked at once more: there may be a next step."""
        self._trouble = 0
        self._failures.pop(key, None)
        self._end(key)
        self._turns.setdefault(key, Turn(order, now, now))

    def nothing(self, key: str) -> None:
        """There was nothing to say after all."""
        self._failures.pop(key, None)
        self._end(key)

    def failed(self, key: str, order: int, now: float, wait_s: float | None = None, cap_s: float = CAP_S) -> None:
        """The server answered, with a refusal for this key alone. It waits `wait_s`, else longer each time."""
        self._trouble = 0
        count = self._failures.get(key, (0, 0.0))[0] + 1
        delay_s = min(cap_s, FIRST_S * 2.0 ** min(count - 1, 10)) if wait_s is None else wait_s
        if key in self._fresh:
            delay_s = min(delay_s, FIRST_S)
        self._failures[key] = (count, now + delay_s)
        self._back(key, order, now)

    def trouble(self, key: str, order: int, now: float, chance: float, retry_after_s: float | None = None) -> None:
        """The call failed as any other would have. `chance`, 0 to 1, keeps nodes from coming back in step."""
        spread = 0.75 + chance / 2
        self._hold_until = now + min(TROUBLE_CAP_S, TROUBLE_FIRST_S * 2.0**self._trouble) * spread
        self._trouble = min(self._trouble + 1, 10)
        if retry_after_s is not None:
            self._throttled_until = max(self._throttled_until, now + retry_after_s * max(1.0, spread))
        self._back(key, order, now)

    def all_said(self) -> None:
        """Nobody waits: what was everybody's trouble is over, as far as can be told."""
        self._trouble = 0

    def answers(self) -> None:
        """A sign of life from the server by another way: try at once, unless it has said when."""
        self._hold_until = 0.0

    def _back(self, key: str, order: int, now: float) -> None:
        self._end(key)
        self.mark(key, order, now)

    def _end(self, key: str) -> None:
        self._active.pop(key, None)
        self._fresh.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self._turns[key] = again
