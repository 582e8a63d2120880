"""The delays before the API server is asked again, as in client-go's reflector. Pure.

They start at 0.8 s and double up to 30 s. Chance adds up to as much again. Two minutes without a failure reset them.
"""

from __future__ import annotations

from proto.common.backoff import Backoff, BackoffHistory

INITIAL_S, CAP_S, RESET_S = 0.8, 30.0, 120.0
AWAY_CAP_S = 4.0
"""The cap while no server answers: a server that is back should be found within seconds."""


class ApiBackoff:
    """One back-off and its history. Time and chance are handed in."""

    def __init__(self, initial_s: float = INITIAL_S) -> None:
        self._backoff = Backoff(initial_s, cap_s=CAP_S, jitter=1.0, reset_after_s=RESET_S)
        self._history = BackoffHistory()

    def delay(self, now: float, chance: float, retry_after_s: float | None = None, cap_s: float = CAP_S) -> float:
        """Seconds to wait after a failure at `now`, never less than the server's `retry_after_s`.

        `chance` is in [0, 1); `cap_s` bounds this delay before chance, not the growth of the later ones.
        """
        delay_s, self._history = self._backoff.next_delay(self._history, now, lambda: chance)
        return max(min(delay_s, cap_s * (1 + chance)), retry_after_s or 0.0)
