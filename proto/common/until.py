"""The next start of a periodic job: the arithmetic of wait.Until (k8s.io/apimachinery/pkg/util/wait), without its loop.

Covers wait.Until, JitterUntil and NonSlidingUntil as pure functions of monotonic time. The caller sleeps, runs and
stops. Delays after failures are in `backoff`.
"""

from __future__ import annotations

from dataclasses import dataclass

from proto.common.backoff import Random, jitter


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
