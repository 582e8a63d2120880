"""Exponential back-off: the growing delays between attempts that fail. Pure; time and chance are handed in.

The arithmetic of wait.Backoff and of the exponential back-off manager in k8s.io/apimachinery/pkg/util/wait. The caller
sleeps, tries again and stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Random = Callable[[], float]
"""Uniform in [0, 1), as random.random."""


def jitter(duration_s: float, factor: float, random: Random) -> float:
    """Between `duration_s` and `duration_s * (1 + factor)`; `duration_s` itself when the factor is not positive."""
    if factor <= 0.0:
        return duration_s
    return duration_s + random() * factor * duration_s


@dataclass(frozen=True, slots=True)
class BackoffHistory:
    """The state of one back-off. The default is one that has not begun."""

    base_s: float | None = None
    """The next delay before jitter; None for the initial one."""
    last: float | None = None
    """Monotonic time of the latest delay's beginning."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays growing from `initial_s` by `factor` up to `cap_s`; each with up to `jitter` of itself added.

    The cap bounds the delay before jitter, as in wait.Backoff. `cap_s` 0 is no cap, `factor` 0 is a constant delay.
    After `reset_after_s` without a delay the next one is the initial one again; 0 never resets.
    """

    initial_s: float
    factor: float = 2.0
    cap_s: float = 0.0
    jitter: float = 0.0
    reset_after_s: float = 0.0

    def delay_s(self, failures: int, random: Random = lambda: 0.0) -> float:
        """The delay after the last of `failures` in a row; 0 after none. For callers that count and keep no history."""
        if failures < 1:
            return 0.0
        base_s = self.initial_s
        for _ in range(failures - 1):
            grown_s = self.grown_s(base_s)
            if grown_s == base_s:
                break
            base_s = grown_s
        return jitter(base_s, self.jitter, random)

    def next_delay(self, history: BackoffHistory, now: float, random: Random) -> tuple[float, BackoffHistory]:
        """The delay that begins now, in seconds, and the history including it."""
        base_s = self._base(history, now)
        return jitter(base_s, self.jitter, random), BackoffHistory(base_s=self.grown_s(base_s), last=now)

    def grown_s(self, delay_s: float) -> float:
        """The delay that follows one of `delay_s`, both before jitter. For callers that keep their latest delay."""
        grown_s = delay_s * self.factor if self.factor else delay_s
        return min(grown_s, self.cap_s) if self.cap_s > 0.0 else grown_s

    def is_reset(self, last: float, now: float) -> bool:
        """True when a delay that began at `last` does not count at `now`: the next one is the initial one."""
        return self.reset_after_s > 0.0 and now - last > self.reset_after_s

    def _base(self, history: BackoffHistory, now: float) -> float:
        if history.base_s is None or history.last is None or self.is_reset(history.last, now):
            return self.initial_s
        return history.base_s
