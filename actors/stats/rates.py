"""Rates of CPU use from two readings. Nothing measures in between, so requests determine the interval. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIN_INTERVAL_S = 0.9
"""A shorter interval measures the scheduler more than the work; the earlier rate is kept."""
MAX_INTERVAL_S = 120.0
"""A longer interval would average over the past; the earlier reading is ignored."""


@dataclass(slots=True)
class _Latest:
    time: float
    cpu_ns: int
    nano_cores: int | None = None


class Rates:
    """State: the latest reading and rate of each cgroup that the last reading had."""

    def __init__(self) -> None:
        self._latest: dict[str, _Latest] = {}

    def has(self, name: str) -> bool:
        """True when a rate of this cgroup is known."""
        latest = self._latest.get(name)
        return latest is not None and latest.nano_cores is not None

    def is_old(self, now: float) -> bool:
        """True when there is no reading that is young enough to compare with."""
        return all(now - latest.time > MAX_INTERVAL_S for latest in self._latest.values())

    def update(self, now: float, cpu_ns: Mapping[str, int]) -> dict[str, int]:
        """Take a reading, CPU time by cgroup, at Unix time `now`. Returns the known rates in nano cores by cgroup."""
        self._latest = {name: self._next(now, used, self._latest.get(name)) for name, used in cpu_ns.items()}
        return {name: one.nano_cores for name, one in self._latest.items() if one.nano_cores is not None}

    @staticmethod
    def _next(now: float, used: int, before: _Latest | None) -> _Latest:
        if before is None or not 0 <= now - before.time <= MAX_INTERVAL_S or used < before.cpu_ns:
            return _Latest(now, used)
        passed_s = now - before.time
        if passed_s < MIN_INTERVAL_S:
            return before
        return _Latest(now, used, round((used - before.cpu_ns) / passed_s))
