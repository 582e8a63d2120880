"""Limits the rate of calls, with a burst: the token bucket of client-go's flow control. Pure."""

from __future__ import annotations


class TokenBucket:
    """Adds `qps` tokens a second and stores at most `burst`, which it starts with. `qps` 0 or less: no limit."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps, self._burst = qps, burst
        self._tokens, self._at = float(burst), float("inf")

    def take(self, now: float) -> float:
        """Take a token. Returns the seconds to wait for it."""
        if self._qps <= 0:
            return 0.0
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def try_take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._fill(now)
        if self._qps > 0 and self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until `try_take` gets a token; takes none."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) / self._qps) if self._qps > 0 else 0.0

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._qps)
        self._at = now
