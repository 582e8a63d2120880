"""Where control groups are mounted on this machine, and what the machine has of what they limit.

Covers cgroup v1 (one mount for each controller, also with v2 beside it as systemd's hybrid has it) and v2 alone.
https://kubernetes.io/docs/concepts/architecture/cgroups/
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actors._host.machine import memory_capacity, swap_capacity

if TYPE_CHECKING:
    from actors._cgroup.quantities.swap import SwapRules

CGROUP_ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Hierarchy:
    """The mounts. Values of `mounts` are all mount points, by controller; v2's by the empty name."""

    unified: bool
    mounts: dict[str, str]

    def paths(self, name: str) -> list[str]:
        """The directories of the cgroup `name`, each once: controllers may share a mount (`cpu,cpuacct`)."""
        return [mount + name for mount in dict.fromkeys(self.mounts.values())]

    def path(self, controller: str, name: str) -> str | None:
        """The directory in which `controller` keeps its files for the cgroup `name`; None where it is not mounted."""
        mount = self.mounts.get("" if self.unified else controller)
        return None if mount is None else mount + name.rstrip("/")


@functools.cache
def hierarchy() -> Hierarchy:
    """The machine's mounts, read once: cgroups' do not change under a running node. Raises OSError."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_text())


def parse_mountinfo(text: str) -> Hierarchy:
    """The hierarchy of a /proc/PID/mountinfo. One that has any v1 controller is v1, whatever is beside it.

    A v2 beside it (systemd's hybrid) limits nothing, but runtimes make every cgroup there too: it is the mount "".
    """
    v1: dict[str, str] = {}
    v2 = ""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        point = _unescaped(before.split(" ")[4])
        if kind == "cgroup2" and not v2:
            v2 = point
        elif kind == "cgroup":
            for controller in options.split(" ")[-1].split(","):
                if controller not in ("rw", "ro", "xattr", "clone_children", "noprefix"):
                    v1.setdefault(controller, point)
    if not v1:
        return Hierarchy(unified=True, mounts={"": v2 or CGROUP_ROOT})
    return Hierarchy(unified=False, mounts=v1 | {"": v2} if v2 else v1)


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape") if "\\" in text else text


@functools.cache
def huge_page_sizes(directory: str = "/sys/kernel/mm/hugepages") -> tuple[str, ...]:
    """The machine's huge page sizes as CRI writes them, `2MB` and `1GB`, smallest first; () where there are none."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    sizes = sorted(int(name.removeprefix("hugepages-").removesuffix("kB")) for name in names)
    return tuple(_size_name(size) for size in sizes)


def _size_name(kib: int) -> str:
    for unit in ("KB", "MB", "GB"):
        if kib < 1024:
            return f"{kib}{unit}"
        kib //= 1024
    return f"{kib}TB"


@functools.cache
def swap_accounting() -> bool:
    """Whether the kernel limits swap: v1 has memory.memsw files, v2 memory.swap.max in every cgroup but the root."""
    where = hierarchy().path("memory", own_cgroup() if hierarchy().unified else "")
    file = "memory.swap.max" if hierarchy().unified else "memory.memsw.limit_in_bytes"
    return where is not None and os.path.exists(f"{where}/{file}")


def own_cgroup(path: str = "/proc/self/cgroup") -> str:
    """The name of this process's cgroup of v2."""
    return own_cgroups(path).get("", "/")


def own_cgroups(path: str = "/proc/self/cgroup") -> dict[str, str]:
    """The names of this process's cgroups by the first controller of each hierarchy; v2's by the empty name."""
    lines = (line.split(":", 2) for line in Path(path).read_text().splitlines())
    return {controllers.partition(",")[0]: name for _, controllers, name in lines}


@functools.cache
def swap_rules(behavior: str) -> SwapRules:
    """What of swap holds on this machine, under memorySwap.swapBehavior; read once, as the kubelet does."""
    from actors._cgroup.quantities.swap import SwapRules  # noqa: PLC0415 - loads the API types; `supervisor start` needs the mounts

    return SwapRules(
        behavior=behavior,
        unified=hierarchy().unified,
        accounting=swap_accounting(),
        memory_capacity_bytes=memory_capacity(),
        swap_capacity_bytes=swap_capacity(),
    )
