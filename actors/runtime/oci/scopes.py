"""Makes a systemd scope for each container of our helper, with the systemd cgroup driver. crun and runc make theirs.

A daemon-reload takes the limits off a cgroup in a slice, unless systemd knows it. So each container has a transient
scope with its limits, delegated to the agent. The helper writes the limits again: systemd knows no huge pages, and
rounds CPU quotas.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from actors._cgroup.systemd.properties import UNLIMITED, Property, cpu_mask, of_limits

_PERIOD_US = 100_000
"""CPU quotas without a period have the kernel's default."""
_PROPERTIES = {
    "cpu.weight": "CPUWeight",
    "memory.high": "MemoryHigh",
    "memory.low": "MemoryLow",
    "memory.max": "MemoryMax",
    "memory.min": "MemoryMin",
    "memory.swap.max": "MemorySwapMax",
    "pids.max": "TasksMax",
}
"""Properties by file of cgroup v2."""


@contextlib.contextmanager
def starting(cgroup: str, resources: Mapping[str, Any]) -> Iterator[None]:
    """Have a scope while the helper starts a container in it. Raises OSError.

    `cgroup` is its path, `resources` is linux.resources. systemd removes an empty scope, so a process stays in it until
    the container's is there. It ends with this process.
    """
    from actors._cgroup.systemd import units  # noqa: PLC0415 - loads jeepney

    above, unit = os.path.split(cgroup)
    holder = subprocess.Popen(
        ["/bin/sh", "-c", "read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        limits = properties(resources, unified=hierarchy().unified)
        units.start_scope(unit, os.path.basename(above) or "-.slice", holder.pid, limits)
        yield
    finally:
        holder.kill()
        holder.communicate()


def limit(cgroup: str, resources: Mapping[str, Any]) -> None:
    """Change the limits of a container's scope. Raises OSError."""
    from actors._cgroup.systemd import units  # noqa: PLC0415 - loads jeepney

    if changes := properties(resources, unified=hierarchy().unified):
        units.change(os.path.basename(cgroup), changes)


def properties(resources: Mapping[str, Any], *, unified: bool) -> list[Property]:
    """The properties of a scope that apply linux.resources, as far as systemd has them. Pure. Raises ValueError."""
    cpu, memory = resources.get("cpu", {}), resources.get("memory", {})
    limit_bytes, swap_bytes = memory.get("limit", 0), memory.get("swap", 0)
    found = of_limits(
        PodLimits(
            cpu_shares=cpu.get("shares"),
            cpu_quota_us=cpu.get("quota"),
            cpu_period_us=cpu.get("period", _PERIOD_US),
            memory_bytes=(UNLIMITED if limit_bytes < 0 else limit_bytes) or None,
            cpus=cpu.get("cpus", ""),
        ),
        unified=unified,
    )
    if not unified:
        return found
    if swap_bytes:
        swap_bytes = UNLIMITED if swap_bytes < 0 else max(0, swap_bytes - limit_bytes)  # OCI's is with memory
        found.append(("MemorySwapMax", ("t", swap_bytes)))
    if cpu.get("mems"):
        found.append(("AllowedMemoryNodes", ("ay", cpu_mask(cpu["mems"]))))
    for file, text in resources.get("unified", {}).items():
        if file in _PROPERTIES:
            found.append((_PROPERTIES[file], ("t", UNLIMITED if text == "max" else int(text))))
    return found
