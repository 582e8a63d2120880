"""Finds the cgroup mounts of this machine, its huge page sizes and its swap rules.

Covers cgroup v1 (one mount for each controller), v1 with v2 beside it (systemd's hybrid mode), and v2 alone.
https://kubernetes.io/docs/concepts/architecture/cgroups/
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from actors._host.machine import HUGE_PAGES, huge_page_kib, memory_capacity, scaled, swap_capacity
from proto.common.machine import mountinfo

if TYPE_CHECKING:
    from actors._cgroup.quantities.swap import SwapRules

CGROUP_ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Hierarchy:
    """The cgroup mounts. `mounts` maps controller to mount point; the empty name is v2."""

    unified: bool
    mounts: dict[str, str]

    def paths(self, name: str) -> list[str]:
        """Return the directories of the cgroup `name`, each once: controllers may share a mount (`cpu,cpuacct`)."""
        return [mount + name for mount in dict.fromkeys(self.mounts.values())]

    def path(self, controller: str, name: str) -> str | None:
        """Return the directory of `controller` for the cgroup `name`; None when the controller is not mounted."""
        mount = self.mounts.get("" if self.unified else controller)
        return None if mount is None else mount + name.rstrip("/")


@functools.cache
def hierarchy() -> Hierarchy:
    """Return the machine's mounts, read once, because they do not change on a running node. Raises OSError."""
    return parse_mountinfo(mountinfo.read())


def parse_mountinfo(table: bytes) -> Hierarchy:
    """Return the hierarchy in a /proc/PID/mountinfo. It is v1 as soon as one v1 controller is mounted.

    A v2 mount beside v1 (systemd's hybrid mode) limits nothing. It is the mount "", because runtimes create every
    cgroup there, too.
    """
    v1: dict[str, str] = {}
    v2 = ""
    for mount in mountinfo.mounts(table):
        if mount.fs_type == "cgroup2" and not v2:
            v2 = mount.mount_point
        elif mount.fs_type == "cgroup":
            for controller in mount.options.split(","):
                if controller not in ("rw", "ro", "xattr", "clone_children", "noprefix"):
                    v1.setdefault(controller, mount.mount_point)
    if not v1:
        return Hierarchy(unified=True, mounts={"": v2 or CGROUP_ROOT})
    return Hierarchy(unified=False, mounts=v1 | {"": v2} if v2 else v1)


NEEDED = ("cpu", "memory")
"""Controllers that limits of pods need. A kernel may have none for memory: Raspberry Pi OS switches it off."""
NEEDED_V1 = ("cpu", "cpuacct", "cpuset", "memory")
"""The same of cgroup v1, where the kubelet asks for them (validateSystemRequirements of pkg/kubelet/cm)."""


def missing_controllers(tree: Hierarchy) -> tuple[str, ...]:
    """Return the controllers that pods need and this machine lacks; none where the kernel does not tell."""
    if not tree.unified:
        return tuple(name for name in NEEDED_V1 if name not in tree.mounts)
    try:
        has = Path(tree.mounts[""], "cgroup.controllers").read_text().split()
    except OSError:
        return ()
    return tuple(name for name in NEEDED if name not in has)


@functools.cache
def huge_page_sizes(directory: str = HUGE_PAGES) -> tuple[str, ...]:
    """Return the machine's huge page sizes as CRI writes them (`2MB`, `1GB`), smallest first."""
    return tuple(f"{scaled(kib)}B" for kib in huge_page_kib(directory))


@functools.cache
def swap_accounting() -> bool:
    """Return True when the kernel limits swap: v1 has memory.memsw files, v2 has memory.swap.max except in the root."""
    where = hierarchy().path("memory", own_cgroup() if hierarchy().unified else "")
    file = "memory.swap.max" if hierarchy().unified else "memory.memsw.limit_in_bytes"
    return where is not None and os.path.exists(f"{where}/{file}")


def own_cgroup(path: str = "/proc/self/cgroup") -> str:
    """Return the name of this process's v2 cgroup."""
    return own_cgroups(path).get("", "/")


def own_cgroups(path: str = "/proc/self/cgroup") -> dict[str, str]:
    """Return this process's cgroups by the first controller of each hierarchy; the empty name is v2."""
    lines = (line.split(":", 2) for line in Path(path).read_text().splitlines())
    return {controllers.partition(",")[0]: name for _, controllers, name in lines}


@functools.cache
def swap_rules(behavior: str) -> SwapRules:
    """Return the swap rules for a memorySwap.swapBehavior on this machine, read once as in the kubelet."""
    from actors._cgroup.quantities.swap import SwapRules  # noqa: PLC0415 - loads the API types; `supervisor start` needs the mounts

    return SwapRules(
        behavior=behavior,
        unified=hierarchy().unified,
        accounting=swap_accounting(),
        memory_capacity_bytes=memory_capacity(),
        swap_capacity_bytes=swap_capacity(),
    )
