"""Reads the machine, its disks and processes from /proc and /sys. Blocks."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from actors._host import interfaces, system
from actors._host.files.listing import names
from actors._host.machine import CPUS, memory_capacity, swap_capacity
from actors._host.open_files import Counter
from actors.stats import measure
from actors.stats.pages.cadvisor import NO_COUNTERS, Device, Hardware, ProcessFigures
from actors.stats.pages.summary import DEFAULT_INTERFACE, Machine
from proto.agent.settings import Settings
from proto.common.machine import procfs
from proto.node.stats import FsStats

CPUINFO = "/proc/cpuinfo"
_CPU = re.compile(r"cpu[0-9]{1,7}", re.ASCII)


def hardware() -> Hardware:
    """For /metrics/cadvisor."""
    cores, sockets = topology()
    return Hardware(
        boot_id=system.boot_id(),
        machine_id=system.machine_id(),
        system_uuid=system.system_uuid(),
        cores=os.cpu_count() or 1,
        physical_cores=cores,
        sockets=sockets,
        memory_bytes=memory_capacity(),
        swap_bytes=swap_capacity(),
        kernel_version=os.uname().release,
        os_version=system.os_image(),
    )


def machine(settings: Settings) -> Machine:
    """For /stats/summary. Raises OSError."""
    most, now = measure.processes()
    shown = {one.name for one in interfaces.of_process("self")}
    return Machine(
        node_name=settings.node_name,
        boot_time=procfs.boot_time(),
        memory_bytes=memory_capacity(),
        swap_bytes=swap_capacity(),
        default_interface=DEFAULT_INTERFACE if DEFAULT_INTERFACE in shown else interfaces.default_interface(),
        tasks_max=most,
        tasks=now,
    )


def devices(*file_systems: FsStats) -> list[Device]:
    """The disks of these file systems, each once."""
    counters = _disk_counters()
    found = {}
    for fs in file_systems:
        if fs.capacity_bytes and fs.device not in found:
            name, numbers = counters.get((os.major(fs.device), os.minor(fs.device)), ("", NO_COUNTERS))
            found[fs.device] = Device(
                f"/dev/{name}" if name else fs.path,
                fs.capacity_bytes,
                fs.used_bytes,
                fs.inodes,
                fs.inodes_free,
                numbers,
            )
    return list(found.values())


def processes(pids: list[int], counter: Counter) -> ProcessFigures:
    """Count the open files and sockets. Each descriptor costs a readlink, so only cAdvisor's metrics have them."""
    found = counter.count(pids)
    return ProcessFigures(
        processes=len(pids),
        descriptors=found.descriptors if found.all_descriptors else None,
        sockets=found.sockets if found.all_sockets else None,
        open_files_max=_open_files_max(pids[0]) if pids else 0,
    )


def _open_files_max(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                soft = line.split()[3]
                return int(soft) if soft.isdigit() else -1
    return 0


def topology(cpuinfo: str = CPUINFO, directory: str = CPUS) -> tuple[int, int]:
    """(cores, sockets) as cAdvisor counts them (machine/machine.go).

    The count of CPUs and 1 where the kernel does not tell. Only x86 has both in /proc/cpuinfo; other machines have them
    in /sys.
    """
    cores: set[tuple[str, str]] = set()
    package = ""
    with contextlib.suppress(OSError):
        for line in Path(cpuinfo).read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "physical id":
                package = value.strip()
            elif key.strip() == "core id":
                cores.add((package, value.strip()))
    cores = cores or _cores_in_sysfs(directory)
    if not cores:
        return os.cpu_count() or 1, 1
    return len(cores), len({socket for socket, _ in cores})


def _cores_in_sysfs(directory: str) -> set[tuple[str, str]]:
    """(socket, core) of the CPUs; without a socket in a kernel that knows none. Empty without both."""
    found = set()
    for name in names(directory):
        if _CPU.fullmatch(name):
            place = Path(directory, name, "topology")
            with contextlib.suppress(OSError):
                core, package = (place / "core_id").read_text(), ""
                with contextlib.suppress(OSError):
                    package = (place / "physical_package_id").read_text()
                found.add((package.strip(), core.strip()))
    return found


def _disk_counters() -> dict[tuple[int, int], tuple[str, tuple[int, ...]]]:
    """Name and fields 1 to 11 of /proc/diskstats by (major, minor) device number."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if len(fields) >= 14:
                found[int(fields[0]), int(fields[1])] = (fields[2], tuple(map(int, fields[3:14])))
    return found
