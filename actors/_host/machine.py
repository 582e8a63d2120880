"""Reads the capacity of this machine from /proc, /sys and statvfs(2): CPUs, memory, disk, huge pages, PIDs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from actors._host.files.listing import names

HUGE_PAGES = "/sys/kernel/mm/hugepages"
CPUS = "/sys/devices/system/cpu"
MEMINFO = "/proc/meminfo"

_CPU = re.compile(r"cpu([0-9]{1,7})", re.ASCII)
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "386",
    "i686": "386",
    "loongarch64": "loong64",
}
"""The kernel's name of an architecture to GOARCH, where the two differ."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Capacity in CPUs, bytes and processes."""

    cpus: int
    memory_bytes: int
    root_fs_bytes: int = 0
    """Size of the file system that holds the pods' directories."""
    huge_page_bytes: dict[str, int] = field(default_factory=dict)
    """Resource (`hugepages-2Mi`) to reserved bytes, 0 for a size without pages."""
    pids: int = 0
    """The smaller of kernel.pid_max and kernel.threads-max; 0 when unknown."""
    cpu_list: str = ""
    """The CPUs online, as the kernel lists them (`0-3`); empty when unknown."""


def read_machine(root_dir: str) -> Machine:
    """Return this machine's capacity. Blocks when the disk of `root_dir` does. Raises OSError."""
    file_system = os.statvfs(_existing(root_dir))
    return Machine(
        cpus=os.cpu_count() or 1,
        memory_bytes=memory_capacity(),
        root_fs_bytes=file_system.f_blocks * file_system.f_frsize,
        huge_page_bytes=huge_pages(HUGE_PAGES),
        pids=_pids(),
        cpu_list=_cpus_online(),
    )


def memory_capacity() -> int:
    """MemTotal in bytes, which the kubelet takes as capacity."""
    return _meminfo("MemTotal")


def memory_used() -> int:
    """MemTotal less MemAvailable, in bytes. Stands for the root cgroup's usage without a memory controller."""
    return _meminfo("MemTotal") - _meminfo("MemAvailable")


def swap_capacity() -> int:
    """SwapTotal in bytes."""
    return _meminfo("SwapTotal")


def swap_used() -> int:
    """SwapTotal less SwapFree, in bytes. Stands for the swap of cgroup v2's root, which has no memory.swap.current."""
    return _meminfo("SwapTotal") - _meminfo("SwapFree")


def _meminfo(key: str) -> int:
    for line in Path(MEMINFO).read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"cannot read {key} from {MEMINFO}: no such line")


def huge_pages(directory: str) -> dict[str, int]:
    """Return resource name (`hugepages-2Mi`) to reserved bytes, largest page size first."""
    return {
        f"hugepages-{scaled(kib)}i": int(Path(directory, f"hugepages-{kib}kB", "nr_hugepages").read_text()) * kib * 1024
        for kib in reversed(huge_page_kib(directory))
    }


def huge_page_kib(directory: str = HUGE_PAGES) -> list[int]:
    """Return the machine's huge page sizes in KiB, smallest first; empty when the kernel has none."""
    prefix, suffix = "hugepages-", "kB"
    return sorted(int(name.removeprefix(prefix).removesuffix(suffix)) for name in names(directory))


def scaled(kib: int) -> str:
    """Return a size in its largest unit: `64K`, `2M`, `1G`."""
    for unit in "KMG":
        if kib < 1024:
            return f"{kib}{unit}"
        kib //= 1024
    return f"{kib}T"


def _pids() -> int:
    limits = []
    for name in ("pid_max", "threads-max"):
        try:
            limits.append(int(Path("/proc/sys/kernel", name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits, default=0)


def _cpus_online() -> str:
    try:
        return Path(CPUS, "online").read_text().strip()
    except OSError:
        return ""


def thermal_throttle_paths(directory: str = CPUS) -> tuple[str, ...]:
    """Return the directories `thermal_throttle` of the machine's CPUs, by number; none without them.

    Their counters tell a container about the load of others. The kubelet masks them (pkg/securitycontext).
    """
    numbers = sorted(int(found[1]) for name in names(directory) if (found := _CPU.fullmatch(name)))
    paths = (f"{directory}/cpu{number}/thermal_throttle" for number in numbers)
    return tuple(path for path in paths if os.path.isdir(path))


def _existing(path: str) -> str:
    """Return the nearest existing directory at or above `path`."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def architecture() -> str:
    """Return GOARCH, the value of the label kubernetes.io/arch."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)
