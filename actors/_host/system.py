"""Reads the identity of this machine and its system: boot, machine and system IDs, OS name, agent. May block."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from proto.common.machine import procfs

KUBELET_VERSION = "v1.36.2+nodevisor"
"""The Kubernetes release whose behaviour is reproduced. It is a semantic version, because clients compare it."""

_VERSION = re.compile(
    r"v(\d+\.\d+\.\d+)(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?", re.ASCII
)
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_MACHINE_ID = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUID = ("/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", *_MACHINE_ID)


def reported_version(chosen: str) -> str:
    """The version to report: `chosen` when it is a semantic version of this release, else KUBELET_VERSION.

    The same holds for --version of the kubelet (component-base/version/dynamic.go).
    """
    own, found = _VERSION.fullmatch(KUBELET_VERSION), _VERSION.fullmatch(chosen)
    return chosen if own and found and own[1] == found[1] else KUBELET_VERSION


def pid_of(pidfd: int) -> int:
    """Return the process ID of a pidfd. Raises OSError."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ProcessLookupError(f"descriptor {pidfd} is no pidfd")


def agent_id(supervisor_pidfd: int) -> str:
    """Return the identity of the running agent, its supervisor's process; empty when unknown, as in a replay.

    A kill of an actor and an upgrade of the agent keep it. A start of the agent changes it.
    """
    with suppress(OSError):
        pid = pid_of(supervisor_pidfd)
        return f"{boot_id()} {pid} {procfs.start_time(pid)}"
    return ""


def kernel_version(release: str) -> tuple[int, int]:
    """Return (major, minor) of uname's release; (0, 0) when it is not a version."""
    found = _RELEASE.match(release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def boot_id() -> str:
    """Return the kernel's boot ID; empty when unknown, like the other IDs."""
    return _first("/proc/sys/kernel/random/boot_id")


def since_boot() -> float:
    """Seconds since boot, with suspends, as the kernel counts a process's start. This clock never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def machine_id() -> str:
    """Return the ID of the installation."""
    return _first(*_MACHINE_ID)


def system_uuid() -> str:
    """Return the ID of the hardware, else of the installation."""
    return _first(*_SYSTEM_UUID)


def os_image() -> str:
    """Return PRETTY_NAME of os-release, or `Linux`."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("PRETTY_NAME="):
                return line.removeprefix("PRETTY_NAME=").strip("\"'")
    return "Linux"


def _first(*paths: str) -> str:
    for path in paths:
        try:
            found = Path(path).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
        except OSError:
            continue
        if found:
            return found
    return ""
