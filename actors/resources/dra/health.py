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


_RESTORED = ""
"""Endpoint of reports from before the start of this process."""


class Report(NamedTuple):
    """A device's health."""

    health: str
    message: str
    until: float
    """Monotonic seconds: later it is unknown."""
    within_s: float = TIMEOUT_S
    """Seconds that the report counts."""


Devices = dict[tuple[str, str], Report]
"""By pool and name."""
ByDriver = dict[str, Devices]


class Health:
    """State: the last report of each device, by plugin. Reported devices replace earlier ones; others stay."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], Devices] = {}
        self.version = 0
        """Grows when a report differs from the one before."""

    def update(self, driver: str, endpoint: str, devices: Iterable[Any], now: float) -> bool:
        """Take a NodeWatchResourcesResponse's devices in, without devices whose names are invalid.

        A plugin has at most MOST_DEVICES. Returns False if more are reported, which are ignored.
        """
        known = self._reports.setdefault((driver, endpoint), {})
        restored = self._reports.get((driver, _RESTORED), {})
        self._expire(known, now)
        reported = list(devices)
        fits = len(reported) <= MOST_DEVICES
        for one in reported[:MOST_DEVICES]:
            names = one.device.pool_name, one.device.device_name
            if names not in known and len(known) >= MOST_DEVICES:
                fits = False
            elif _are_names(names):
                report = _report(one, now)
                before = restored.pop(names, None)
                self.version += not _says_the_same(known.get(names, before), report)
                known[names] = report
        return fits

    @staticmethod
    def _expire(known: dict[tuple[str, str], Report], now: float) -> None:
        for names in [names for names, report in known.items() if report.until < now]:
            del known[names]

    def restore(self, reports: ByDriver) -> None:
        """Take reports in that a file has, without devices whose names are invalid."""
        for driver, devices in reports.items():
            valid = [(names, one) for names, one in devices.items() if _are_names(names)][:MOST_DEVICES]
            self._reports[driver, _RESTORED] = {names: _bounded(one) for names, one in valid}

    def by_driver(self, now: float) -> ByDriver:
        """The reports that still count. Of a driver with two plugins, the report with more time left."""
        found: ByDriver = {}
        for (driver, _), devices in self._reports.items():
            known = found.setdefault(driver, {})
            for names, report in devices.items():
                if report.until >= max(now, known[names].until if names in known else now):
                    known[names] = report
        return {driver: devices for driver, devices in found.items() if devices}

    def any_reports(self) -> bool:
        """True when there are reports, which may become too old."""
        return any(self._reports.values())

    def clear(self, driver: str, endpoint: str) -> None:
        """The plugin reports no more."""
        self.version += bool(self._reports.pop((driver, endpoint), None))

    def forget(self, driver: str, endpoint: str) -> None:
        """The plugin's stream has ended, and with it what was known of the driver before this process started."""
        self.clear(driver, endpoint)
        self.clear(driver, _RESTORED)

    def of(self, driver: str, pool: str, name: str, now: float) -> tuple[str, str]:
        """(health, message) of a device; of two plugins of its driver, the one whose report counts longer."""
        reports = [
            found[pool, name] for (one, _), found in self._reports.items() if one == driver and (pool, name) in found
        ]
        latest = max(reports, key=lambda report: report.until, default=None)
        if latest is None or latest.until < now:
            return UNKNOWN, ""
        return latest.health, latest.message


def _are_names(names: tuple[str, str]) -> bool:
    return all(name and len(name) <= MOST_NAME and name.isprintable() for name in names)


def _report(device: Any, now: float) -> Report:
    within_s = device.health_check_timeout_seconds
    within_s = min(within_s if within_s > 0 else TIMEOUT_S, MOST_TIMEOUT_S)
    return Report(_STATES.get(device.health, UNKNOWN), _shortened(device.message), now + within_s, within_s)


def _bounded(report: Report) -> Report:
    """A report that a driver could have made."""
    too_long_s = max(0.0, report.within_s - MOST_TIMEOUT_S)
    return Report(
        report.health if report.health in _STATES.values() else UNKNOWN,
        _shortened(report.message),
        report.until - too_long_s,
        report.within_s - too_long_s,
    )


def _says_the_same(before: Report | None, report: Report) -> bool:
    return before is not None and before._replace(until=report.until) == report


def _shortened(message: str) -> str:
    return message if len(message) <= MOST_MESSAGE else f"{message[: MOST_MESSAGE - 3]}..."
