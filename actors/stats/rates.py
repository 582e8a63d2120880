"""CPU in use, from two readings: nobody measures in between, so the interval is the one between two questions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEAST_S = 0.9
"""A shorter interval says more of the scheduler than of the work; the rate before it stands."""
LONGEST_S = 120.0
"""A longer one would tell of the past: as if there had been no reading."""


@dataclass(slots=True)
class _Latest:
    time: float
    cpu_ns: int
    nano_cores: int | None = None


class Rates:
    """State: the latest reading of each cgroup that still was there."""

    def __init__(self) -> None:
        self._latest: dict[str, _Latest] = {}

    def has(self, name: str) -> bool:
        """True when a rate of this cgroup is known."""
        latest = self._latest.get(name)
        return latest is not None and latest.nano_cores is not None

    def is_old(self, now: float) -> bool:
        """True when no reading is young enough to compare with, or none is there."""
        return all(now - latest.time > LONGEST_S for latest in self._latest.values())

    def update(self, now: float, cpu_ns: Mapping[str, int]) -> dict[str, int]:
        """Take a reading at Unix time `now`, CPU time by cgroup; nano cores of those that were read before."""
        self._latest = {name: self._next(now, used, self._latest.get(name)) for name, used in cpu_ns.items()}
        return {name: one.nano_cores for name, one in self._latest.items() if one.nano_cores is not None}

    @staticmethod
    def _next(now: float, used: int, before: _Latest | None) -> _Latest:
        if before is None or not 0 <= now - before.time <= LONGEST_S or used < before.cpu_ns:
            return _Latest(now, used)
        passed_s = now - before.time
        if passed_s < LEAST_S:
            return before
        return _Latest(now, used, round((used - before.cpu_ns) / passed_s))
