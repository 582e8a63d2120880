"""Reads and writes the limit files of a cgroup, v1 and v2.

fs.py creates and removes cgroups; quantities/resources.py computes the limits of a pod.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.quantities.resources import PodLimits, shares_to_weight, weight_to_shares

UNLIMITED_V1 = 1 << 62
"""Without a limit, memory.limit_in_bytes is the largest multiple of the page size, which is above this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The current limits of a cgroup; None is unlimited."""

    cpu_shares: int
    cpu_quota_us: int | None
    cpu_period_us: int
    memory_bytes: int | None


def read_limits(name: str, tree: Hierarchy) -> Limits | None:
    """Return the limits of the cgroup `name`; None when it does not exist. Raises OSError."""
    cpu, memory = tree.path("cpu", name), tree.path("memory", name)
    if cpu is None or memory is None:
        return None
    try:
        return _read_v2(cpu) if tree.unified else _read_v1(cpu, memory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return None
        raise


def _read_v1(cpu: str, memory: str) -> Limits:
    quota, limit = int(_read(f"{cpu}/cpu.cfs_quota_us")), int(_read(f"{memory}/memory.limit_in_bytes"))
    return Limits(
        cpu_shares=int(_read(f"{cpu}/cpu.shares")),
        cpu_quota_us=None if quota < 0 else quota,
        cpu_period_us=int(_read(f"{cpu}/cpu.cfs_period_us")),
        memory_bytes=None if limit >= UNLIMITED_V1 else limit,
    )


def _read_v2(path: str) -> Limits:
    quota, period = _read(f"{path}/cpu.max").split()
    limit = _read(f"{path}/memory.max")
    return Limits(
        cpu_shares=weight_to_shares(int(_read(f"{path}/cpu.weight"))),
        cpu_quota_us=None if quota == "max" else int(quota),
        cpu_period_us=int(period),
        memory_bytes=None if limit == "max" else int(limit),
    )


def write_limits(name: str, limits: PodLimits, tree: Hierarchy) -> None:
    """Set the limits of the cgroup `name` that are not None. Raises OSError.

    Huge page limits are left out when the kernel has no hugetlb controller.
    """
    for controller, file, text in files(limits, unified=tree.unified):
        where = tree.path(controller, name)
        if where is not None and (controller != "hugetlb" or os.path.exists(f"{where}/{file}")):
            write(f"{where}/{file}", text)


def files(limits: PodLimits, *, unified: bool) -> list[tuple[str, str, str]]:
    """Return (controller, file, content) in writing order."""
    found = _files_v2(limits) if unified else _files_v1(limits)
    return [(controller, file, str(content)) for controller, file, content in found if content is not None]


def _files_v1(limits: PodLimits) -> list[tuple[str, str, str | int | None]]:
    return [
        ("cpu", "cpu.shares", limits.cpu_shares),
        ("cpu", "cpu.cfs_period_us", limits.cpu_period_us),
        ("cpu", "cpu.cfs_quota_us", limits.cpu_quota_us or None),
        ("memory", "memory.limit_in_bytes", limits.memory_bytes),
        ("pids", "pids.max", limits.pids),
        *(
            ("hugetlb", f"hugetlb.{size}.{file}", count)
            for size, count in limits.huge_pages
            for file in ("limit_in_bytes", "rsvd.limit_in_bytes")
        ),
    ]


def _files_v2(limits: PodLimits) -> list[tuple[str, str, str | int | None]]:
    quota = "max" if limits.cpu_quota_us == -1 else limits.cpu_quota_us
    weight = None if limits.cpu_shares is None else shares_to_weight(limits.cpu_shares)
    return [
        ("cpu", "cpu.weight", weight),
        ("cpu", "cpu.max", f"{quota} {limits.cpu_period_us}" if quota else None),
        ("memory", "memory.max", limits.memory_bytes),
        ("memory", "memory.min", limits.memory_min_bytes),
        ("memory", "memory.low", limits.memory_low_bytes),
        ("pids", "pids.max", limits.pids),
        ("cpuset", "cpuset.cpus", limits.cpus or None),
        *(
            ("hugetlb", f"hugetlb.{size}.{file}", count)
            for size, count in limits.huge_pages
            for file in ("max", "rsvd.max")
        ),
    ]


def write(path: str, text: str) -> None:
    """Write one cgroup file. Raises OSError; FileNotFoundError when its controller is missing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    return Path(path).read_text().strip()
