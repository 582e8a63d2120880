"""What this machine has of the resources a node declares. Reads /proc, /sys and one file system's size."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

HUGE_PAGES = "/sys/kernel/mm/hugepages"
MEMINFO = "/proc/meminfo"

_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i386": "386",
    "i686": "386",
    "loongarch64": "loong64",
}
"""The kernel's name to Go's; those not here are the same."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Capacity in bytes and CPUs."""

    cpus: int
    memory_bytes: int
    root_fs_bytes: int = 0
    """Of the file system the pods' directories are on."""
    huge_page_bytes: dict[str, int] = field(default_factory=dict)
    """Resource (`hugepages-2Mi`) to bytes set aside; also of sizes with none."""
    pids: int = 0
    """kernel.pid_max or threads-max, whichever is less; 0 when unknown."""


def read_machine(root_dir: str) -> Machine:
    """The machine we run on. May block as `root_dir` does. Raises OSError."""
    file_system = os.statvfs(_existing(root_dir))
    return Machine(
        cpus=os.cpu_count() or 1,
        memory_bytes=memory_capacity(),
        root_fs_bytes=file_system.f_blocks * file_system.f_frsize,
        huge_page_bytes=huge_pages(HUGE_PAGES),
        pids=_pids(),
    )


def memory_capacity() -> int:
    """MemTotal in bytes, which the kubelet takes as capacity."""
    return _meminfo("MemTotal")


def memory_used() -> int:
    """MemTotal less MemFree, in bytes. Stands for the usage of cgroup v2's root, which has no memory.current."""
    return _meminfo("MemTotal") - _meminfo("MemFree")


def swap_capacity() -> int:
    """SwapTotal in bytes."""
    return _meminfo("SwapTotal")


def _meminfo(key: str) -> int:
    for line in Path(MEMINFO).read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"cannot read {key} from {MEMINFO}: no such line")


def huge_pages(directory: str) -> dict[str, int]:
    """Resource name to bytes of each huge page size, largest first."""
    found: dict[int, int] = {}
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return {}
    for name in names:
        page_kib = int(name.removeprefix("hugepages-").removesuffix("kB"))
        found[page_kib] = int(Path(directory, name, "nr_hugepages").read_text()) * page_kib * 1024
    return {_resource(page_kib): found[page_kib] for page_kib in sorted(found, reverse=True)}


def _resource(page_kib: int) -> str:
    for unit in ("Ki", "Mi", "Gi"):
        if page_kib < 1024:
            return f"hugepages-{page_kib}{unit}"
        page_kib //= 1024
    return f"hugepages-{page_kib}Ti"


def _pids() -> int:
    limits = []
    for name in ("pid_max", "threads-max"):
        try:
            limits.append(int(Path("/proc/sys/kernel", name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits, default=0)


def _existing(path: str) -> str:
    """The nearest directory there is."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path


def architecture() -> str:
    """GOARCH, the value of the label kubernetes.io/arch."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)
