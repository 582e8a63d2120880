"""Identifies the running agent, and lists the events of a kubelet's start."""

from __future__ import annotations

import os
from contextlib import suppress

from actors._host.machine import swap_capacity
from actors._host.system import kernel_version, pid_of
from proto.common.machine import procfs

CGROUP_V1 = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to "
    "cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)
ON_DISK = (
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped "
    "to disk and should no longer be considered secure."
)


def has_noswap(release: str) -> bool:
    """Return True for a kernel release whose tmpfs can be kept out of swap: 6.4 or later."""
    return kernel_version(release) >= (6, 4)


def identity(supervisor_pidfd: int) -> str:
    """Return the supervisor's `PID:STARTTIME`, unique since boot; empty when unknown."""
    with suppress(OSError):
        pid = pid_of(supervisor_pidfd)
        return f"{pid}:{started}" if (started := procfs.start_time(pid)) else ""
    return ""


def starting() -> list[tuple[str, str, str]]:
    """Return (type, reason, message) of the events of a start."""
    said = [("Normal", "Starting", "Starting kubelet.")]
    if swap_capacity() and not has_noswap(os.uname().release):
        said.append(("Warning", "PossibleMemoryBackedVolumesOnDisk", ON_DISK))
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        said.append(("Warning", "CgroupV1", CGROUP_V1))
    return said
