"""A fake systemd on a private bus: units as directories with properties, jobs that end with a signal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, HeaderFields, new_error, new_method_return, new_signal
from jeepney.io.blocking import open_dbus_connection

from tests.cgroups import make_files
from tests.system_bus import BusPeer

MANAGER = DBusAddress("/org/freedesktop/systemd1", None, "org.freedesktop.systemd1.Manager")
SIGNATURES = {
    **dict.fromkeys(("CPUWeight", "CPUShares", "MemoryMax", "MemoryLimit", "MemoryMin", "TasksMax"), "t"),
    **dict.fromkeys(("CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec"), "t"),
    **dict.fromkeys(("CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting"), "b"),
    **dict.fromkeys(("MemoryHigh", "MemoryLow", "MemorySwapMax"), "t"),
    **dict.fromkeys(("Description", "Slice", "CollectMode"), "s"),
    "PIDs": "au",
    "Delegate": "b",
    "AllowedMemoryNodes": "ay",
    **dict.fromkeys(("Wants", "Before", "Conflicts"), "as"),
    "DefaultDependencies": "b",
    "AllowedCPUs": "ay",
}
COMMON = ("Description", "Wants", "Before", "Conflicts", "DefaultDependencies")
"""Of every new slice, besides what it accounts for."""
FILES = ("cpu.weight", "cpu.max", "memory.max", "memory.min", "pids.max", "cpuset.cpus")


class FakeSystemd(BusPeer):
    """`units`: loaded units with their properties. `calls`: member and unit of each call.

    `job_result` is the result of jobs; `deaf` systemd answers nothing.
    """

    names = ("org.freedesktop.systemd1",)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.job_result, self.deaf = "done", False
        self._jobs, self._subscribed = 0, False

    def properties(self, unit: str) -> dict[str, Any]:
        """The unit's properties, without those of every new slice."""
        return {
            key: value
            for key, value in self.units[unit].items()
            if not key.endswith("Accounting") and key not in COMMON
        }

    def path(self, unit: str) -> Path:
        """The directory of a slice: one level for each dash; of a scope, below its slice."""
        if unit.endswith(".scope"):
            return self.path(self.units[unit]["Slice"]) / unit
        parts = unit.removesuffix(".slice").split("-")
        return Path(self.root, *("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts))))

    def _answers(self, message: Any) -> list[Any]:
        if self.deaf:
            return []
        member, body = message.header.fields[HeaderFields.member], message.body
        unit = str(body[0]) if body else ""
        self.calls.append((member, unit))
        if member == "Subscribe":
            self._subscribed = True
            return [new_method_return(message)]
        if member == "StartTransientUnit":
            if unit in self.units:
                return [_error(message, "UnitExists", f"Unit {unit} was already loaded or has a fragment file.")]
            self.units[unit] = {}
        if unit not in self.units:
            return [_error(message, "NoSuchUnit", f"Unit {unit} not loaded.")]
        if member in ("StartTransientUnit", "SetUnitProperties"):
            self._set(unit, body[2])
        if member == "StopUnit":
            shutil.rmtree(self.path(unit), ignore_errors=True)
            del self.units[unit]
        elif member != "SetUnitProperties":
            make_files(self.path(unit), *FILES)
        return [new_method_return(message)] if member == "SetUnitProperties" else self._job(message, unit)

    def _set(self, unit: str, properties: list[tuple[str, tuple[str, Any]]]) -> None:
        for key, (signature, value) in properties:
            assert SIGNATURES[key] == signature, key
            self.units[unit][key] = value

    def _job(self, message: Any, unit: str) -> list[Any]:
        self._jobs += 1
        job = f"/org/freedesktop/systemd1/job/{self._jobs}"
        forged = new_signal(MANAGER, "JobRemoved", "uoss", (self._jobs, job, unit, "failed"))
        with open_dbus_connection(self.address) as stranger:
            stranger.send(forged)
        ended = new_signal(MANAGER, "JobRemoved", "uoss", (self._jobs, job, unit, self.job_result))
        answer = new_method_return(message, "o", (job,))
        return [ended, answer] if self._subscribed else [answer]  # a short job may end before its answer


def _error(message: Any, name: str, text: str) -> Any:
    return new_error(message, f"org.freedesktop.systemd1.{name}", "s", (text,))
