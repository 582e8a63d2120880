"""Start times of repeated work and growing delays: the arithmetic of k8s.io/apimachinery/pkg/util/wait.

Pure functions of monotonic time, for restarts of processes and for periodic loops. `Until` is wait.Until, JitterUntil
and NonSlidingUntil. `Backoff` is the exponential back-off manager of BackoffUntil. The callers sleep and run.
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
class Until:
    """A period between runs, without an end.

    `sliding`: the period begins when a run ends, otherwise when it starts. Then the next run follows at once after a
    run that took longer than the period. Runs never overlap, and missed runs are not repeated.
    """

    period_s: float
    jitter_factor: float = 0.0
    sliding: bool = True

    def next_start(self, started: float, finished: float, random: Random) -> float:
        """Monotonic time of the next start, never before `finished`."""
        wait_s = jitter(max(0.0, self.period_s), self.jitter_factor, random)
        return finished + wait_s if self.sliding else max(started + wait_s, finished)


@dataclass(frozen=True, slots=True)
class BackoffHistory:
    """The state of a back-off. The default is a back-off without any delay so far."""

    base_s: float | None = None
    """The next delay before jitter; None for the initial one."""
    last: float | None = None
    """Monotonic time at which the latest delay began."""


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

    def next_delay(self, history: BackoffHistory, now: float, random: Random) -> tuple[float, BackoffHistory]:
        """The delay that begins now, in seconds, and the history with it."""
        base_s = self._base(history, now)
        grown_s = base_s * self.factor if self.factor else base_s
        if self.cap_s > 0.0:
            grown_s = min(grown_s, self.cap_s)
        return jitter(base_s, self.jitter, random), BackoffHistory(base_s=grown_s, last=now)

    def _base(self, history: BackoffHistory, now: float) -> float:
        if history.base_s is None or history.last is None:
            return self.initial_s
        if self.reset_after_s > 0.0 and now - history.last > self.reset_after_s:
            return self.initial_s
        return history.base_s
