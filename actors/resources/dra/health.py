"""The health of devices, as their DRA drivers report it. Pure.

Source: pkg/kubelet/cm/dra/healthinfo.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
TIMEOUT_S = 30.0
"""A report counts for this time, unless the driver says another one."""
MOST_TIMEOUT_S = 86_400.0
MOST_DEVICES = 16_384
MOST_NAME = 253
MOST_MESSAGE = 1024
_STATES = {1: HEALTHY, 2: UNHEALTHY}


class Report(NamedTuple):
    """A device's health."""

    health: str
    message: str
    until: float
    """Monotonic seconds: later it is unknown."""


class Health:
    """State: the last report of each device, by plugin. Reported devices replace earlier ones; others stay."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], dict[tuple[str, str], Report]] = {}

    def update(self, driver: str, endpoint: str, devices: Iterable[Any], now: float) -> bool:
        """Take a NodeWatchResourcesResponse's devices in, without devices whose names are invalid.

        A plugin has at most MOST_DEVICES. Returns False if more are reported, which are ignored.
        """
        known = self._reports.setdefault((driver, endpoint), {})
        self._expire(known, now)
        reported = list(devices)
        fits = len(reported) <= MOST_DEVICES
        for one in reported[:MOST_DEVICES]:
            names = one.device.pool_name, one.device.device_name
            if names not in known and len(known) >= MOST_DEVICES:
                fits = False
            elif all(name and len(name) <= MOST_NAME and name.isprintable() for name in names):
                within_s = one.health_check_timeout_seconds
                until = now + min(within_s if within_s > 0 else TIMEOUT_S, MOST_TIMEOUT_S)
                known[names] = Report(_STATES.get(one.health, UNKNOWN), _shortened(one.message), until)
        return fits

    @staticmethod
    def _expire(known: dict[tuple[str, str], Report], now: float) -> None:
        for names in [names for names, report in known.items() if report.until < now]:
            del known[names]

    def clear(self, driver: str, endpoint: str) -> None:
        """The plugin reports no more."""
        self._reports.pop((driver, endpoint), None)

    def of(self, driver: str, pool: str, name: str, now: float) -> tuple[str, str]:
        """(health, message) of a device; of two plugins of its driver, the one whose report counts longer."""
        reports = [
            found[pool, name] for (one, _), found in self._reports.items() if one == driver and (pool, name) in found
        ]
        latest = max(reports, key=lambda report: report.until, default=None)
        if latest is None or latest.until < now:
            return UNKNOWN, ""
        return latest.health, latest.message


def _shortened(message: str) -> str:
    return message if len(message) <= MOST_MESSAGE else f"{message[: MOST_MESSAGE - 3]}..."
