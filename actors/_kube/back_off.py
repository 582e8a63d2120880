"""How long the reflector waits before it lists or watches again. Pure.

Source: client-go's reflector: 0.8 s, doubled up to 30 s, each with up to as much again at random; forgotten once two
minutes passed without a failure.
"""

from __future__ import annotations

INITIAL_S, CAP_S, RESET_S = 0.8, 30.0, 120.0
AWAY_CAP_S = 4.0
"""While nobody answers at all: no server is to be spared there, and one that is back is to be found within seconds."""


class BackOff:
    """Time and chance are handed in."""

    def __init__(self, initial_s: float = INITIAL_S) -> None:
        self._initial_s = self._next_s = initial_s
        self._last = float("-inf")

    def delay(self, now: float, chance: float, retry_after_s: float | None = None, cap_s: float = CAP_S) -> float:
        """Seconds to wait after one more failure at `now`; `chance` from 0 to 1. Never less than the server asks."""
        if now - self._last > RESET_S:
            self._next_s = self._initial_s
        self._last = now
        base, self._next_s = self._next_s, min(CAP_S, self._next_s * 2)
        return max(min(cap_s, base) * (1 + chance), retry_after_s or 0.0)
