"""Names the slices of cgroups and computes their properties, for cgroup v1 and v2. Pure.

Source: systemd.resource-control(5), org.freedesktop.systemd1(5), and libcontainer's systemd driver, which the kubelet
uses. Units: microseconds and bytes.
"""

from __future__ import annotations

from actors._cgroup.quantities.resources import PodLimits, shares_to_weight

Property = tuple[str, tuple[str, object]]
"""Name, and (D-Bus signature, value)."""

UNLIMITED = (1 << 64) - 1
_ACCOUNTING: list[Property] = [(f"{what}Accounting", ("b", True)) for what in ("CPU", "Memory", "IO", "Tasks")]
_SHUTDOWN = "shutdown.target"
_PERCENT_US = 10_000
"""systemd keeps a CPU quota as a percentage of one core: this many microseconds of a second."""


def slice_of(name: str) -> str:
    """Return the unit of the cgroup `name`: its last component."""
    return name.rstrip("/").rpartition("/")[2]


def slices_above(name: str) -> list[str]:
    """Return the units above the cgroup `name`, the highest first."""
    return name.strip("/").split("/")[:-1]


def of_unit(unit: str) -> list[Property]:
    """Return the properties of a new slice without limits: accounting, and its dependencies.

    At a daemon-reload systemd keeps only dependencies that it was given.
    """
    parent = unit.rpartition("-")[0]
    return [
        ("Description", ("s", f"cgroup of pods {unit}")),
        ("Wants", ("as", [f"{parent}.slice" if parent else "-.slice"])),
        ("DefaultDependencies", ("b", False)),
        ("Before", ("as", [_SHUTDOWN])),
        ("Conflicts", ("as", [_SHUTDOWN])),
        *_ACCOUNTING,
    ]


def of_scope(parent: str, pid: int) -> list[Property]:
    """Return the properties of a container's new scope without limits: delegated, with one process, in a slice."""
    return [
        ("Description", ("s", "container")),
        ("Slice", ("s", parent)),
        ("PIDs", ("au", [pid])),
        ("Delegate", ("b", True)),
        ("DefaultDependencies", ("b", False)),
        ("CollectMode", ("s", "inactive-or-failed")),
        *_ACCOUNTING,
    ]


def of_limits(limits: PodLimits, *, unified: bool) -> list[Property]:
    """Return the properties for the limits that are not None. Huge pages have none: their files are written."""
    shares = limits.cpu_shares
    found: list[tuple[str, int | None]]
    if unified:
        weight = None if shares is None else shares_to_weight(shares)
        found = [("CPUWeight", weight), ("MemoryMax", limits.memory_bytes)]
        found += [("MemoryMin", limits.memory_min_bytes), ("MemoryLow", limits.memory_low_bytes)]
    else:
        found = [("CPUShares", shares), ("MemoryLimit", limits.memory_bytes)]
    found += [("TasksMax", limits.pids), *_quota(limits)]
    numbers: list[Property] = [(key, ("t", value)) for key, value in found if value is not None]
    if unified and limits.cpus:
        numbers.append(("AllowedCPUs", ("ay", cpu_mask(limits.cpus))))
    return numbers


def _quota(limits: PodLimits) -> list[tuple[str, int | None]]:
    quota, period = limits.cpu_quota_us, limits.cpu_period_us
    if not quota or not period:
        return []
    per_second = UNLIMITED if quota < 0 else -(-quota * 1_000_000 // period)
    if per_second != UNLIMITED:  # rounded up, so that containers below may have all that is left of a percent
        per_second = -(-per_second // _PERCENT_US) * _PERCENT_US
    return [("CPUQuotaPeriodUSec", period), ("CPUQuotaPerSecUSec", per_second)]


def cpu_mask(cpus: str) -> bytes:
    """Return the bit mask of a CPU list (`0-1,4`): the lowest bit of the first byte is CPU 0."""
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes(mask.bit_length() // 8 + 1, "little")
