"""How long the reflector waits before it lists or watches again. Pure.

Source: client-go's reflector: 0.8 s, doubled up to 30 s, each with up to as much again at random; forgotten once two
minutes passed without a failure.
"""

from __future__ import annotations

INITIAL_S, CAP_S, RESET_S = 0.8, 30.0, 120.0


class BackOff:
    """Time and chance are handed in."""

    def __init__(self) -> None:
        self._next_s = INITIAL_S
        self._last = float("-inf")

    def delay(self, now: float, chance: float, retry_after_s: float | None = None) -> float:
        """Seconds to wait after one more failure at `now`; `chance` from 0 to 1. Never less than the server asks."""
        if now - self._last > RESET_S:
            self._next_s = INITIAL_S
        self._last = now
        base, self._next_s = self._next_s, min(CAP_S, self._next_s * 2)
        return max(base * (1 + chance), retry_after_s or 0.0)
