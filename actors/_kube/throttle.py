"""Limits the rate of calls, with a burst: the token bucket of client-go's flow control. Pure."""

from __future__ import annotations


class TokenBucket:
    """Adds `qps` tokens a second and stores at most `burst`. `qps` 0 or less: no limit."""

    def __init__(self, qps: float, burst: int, now: float) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token. Returns the seconds to wait for it."""
        if self._qps <= 0:
            return 0.0
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)
