"""Keeps the last reports of devices' health in dra_health_state, so that they outlive a kill of this process.

Name and format are the kubelet's (pkg/kubelet/cm/dra/healthinfo.go and state of Kubernetes 1.36).
"""

from __future__ import annotations

import logging
import os
import time
from datetime import datetime
from typing import Annotated

import msgspec

from actors._base import Actor
from actors._host.files.numbered_file import NumberedFile
from actors._host.files.untrusted_files import read_regular
from actors.resources.dra.health import TIMEOUT_S, ByDriver, Health, Report
from proto.common import rfc3339, untrusted
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

NAME = "dra_health_state"
MOST_BYTES = 16 << 20
DISK_S = 10.0
PAUSE_S = 1.0
"""Shortest time between two writes."""
REFRESH_S = 10.0
"""After this time a report is written that says the same as before, but later."""
_NANOS = 10**9


class _Device(msgspec.Struct):
    pool: str = msgspec.field(name="PoolName")
    name: str = msgspec.field(name="DeviceName")
    health: str = msgspec.field(name="Health")
    updated: str = msgspec.field(name="LastUpdated")
    within: Annotated[int, msgspec.Meta(le=(1 << 63) - 1)] = msgspec.field(name="HealthCheckTimeout", default=0)
    """Nanoseconds; 0 is the default."""
    message: str = msgspec.field(name="Message", default="")


class _Driver(msgspec.Struct):
    devices: dict[str, _Device] | None = msgspec.field(name="Devices", default=None)


def encode(reports: ByDriver, now: float, wall: float) -> bytes:
    """The file's content. `now`: monotonic seconds, `wall`: Unix seconds."""
    drivers = {
        driver: _Driver(
            {
                f"{pool}/{name}": _Device(
                    pool,
                    name,
                    one.health,
                    rfc3339.nanos(int((wall + one.until - one.within_s - now) * _NANOS)),
                    int(one.within_s * _NANOS),
                    one.message,
                )
                for (pool, name), one in sorted(devices.items())
            }
        )
        for driver, devices in sorted(reports.items())
    }
    return msgspec.json.encode(drivers)


def decode(content: bytes, now: float, wall: float) -> ByDriver:
    """The reports of a file's content that still count. Raises ValueError."""
    drivers = untrusted.decode_json(content, dict[str, _Driver])
    found: ByDriver = {}
    for driver, state in drivers.items():
        for one in (state.devices or {}).values():
            within_s = one.within / _NANOS if one.within > 0 else TIMEOUT_S
            age_s = max(0.0, wall - _unix(one.updated))  # the clock may have been set back
            if age_s < within_s:
                report = Report(one.health, one.message, now + within_s - age_s, within_s)
                found.setdefault(driver, {})[one.pool, one.name] = report
    return found


def _unix(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"LastUpdated is no time: {text[:40]!r}") from error


class HealthFile:
    """Writes changes soon. Runs in the actor's mailbox thread, except `load`."""

    def __init__(self, actor: Actor, health: Health) -> None:
        self._actor, self._health = actor, health
        self._on = actor.settings.resource_health_status
        self._file = NumberedFile(os.path.join(actor.settings.root_dir, NAME), MOST_BYTES)
        self._number, self._version, self._written_at = 0, health.version, 0.0
        self._writing = self._fails = False

    def load(self) -> None:
        """Restore the reports, before the actor is ready. Blocks. A file that cannot be used is as none."""
        if not self._on:
            return
        try:
            reports = decode(read_regular(self._file.path, MOST_BYTES), time.monotonic(), time.time())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("cannot use %s: %s; the health of devices is unknown until its next report", NAME, error)
            return
        self._health.restore(reports)
        self._version = self._health.version

    def save_soon(self) -> None:
        """Write the reports, unless they are written already."""
        if self._on and not self._writing and self._is_due():
            self._actor.spawn(self._write_changes(), "health of devices")

    def _is_due(self) -> bool:
        return self._version != self._health.version or time.monotonic() - self._written_at >= REFRESH_S

    async def _write_changes(self) -> None:
        self._writing = True
        try:
            while self._is_due():
                await self._write()
                await self._actor.sleep(PAUSE_S)
        except (OSError, ActorError) as error:
            self._version = -1
            if not self._fails:
                log.warning("cannot write %s: %s; trying again with the next report", self._file.path, error)
            self._fails = True
        finally:
            self._writing = False

    async def _write(self) -> None:
        now = time.monotonic()
        self._version, self._written_at = self._health.version, now
        self._number += 1
        content = encode(self._health.by_driver(now), now, time.time())
        if len(content) > MOST_BYTES:
            content = b"{}"
        await self._actor.blocking(DISK_S, self._file.write, self._number, content)
        self._fails = False
