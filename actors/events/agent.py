"""Identifies the running agent, and lists the events of a kubelet's start."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from proto.common import procfs

CGROUP_V1 = (
    "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to "
    "cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
)


def identity(supervisor_pidfd: int) -> str:
    """Return the supervisor's `PID:STARTTIME`, unique since boot; empty when unknown."""
    with suppress(OSError):
        for line in Path(f"/proc/self/fdinfo/{supervisor_pidfd}").read_text().splitlines():
            if line.startswith("Pid:"):
                pid = int(line.split()[1])
                return f"{pid}:{started}" if (started := procfs.start_time(pid)) else ""
    return ""


def starting() -> list[tuple[str, str, str]]:
    """Return (type, reason, message) of the events of a start."""
    said = [("Normal", "Starting", "Starting kubelet.")]
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        said.append(("Warning", "CgroupV1", CGROUP_V1))
    return said
