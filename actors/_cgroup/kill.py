"""Kills the processes in the cgroup of a removed pod, as the kubelet does before it removes the cgroup.

A runtime that was killed while it created a sandbox may not know the sandbox's process.
Source: tryKillingCgroupProcesses in pkg/kubelet/cm/pod_container_manager_linux.go.
"""

from __future__ import annotations

import contextlib
import os
import signal

from actors._cgroup.fs import processes_below
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.names import pod_uid


def kill_processes(name: str, tree: Hierarchy | None = None) -> int:
    """Send SIGKILL to every process in the pod's cgroup `name` and below; return their number.

    Raises OSError, and ValueError when `name` is not the cgroup of a pod.
    """
    if not any(pod_uid(driver, os.path.basename(name)) for driver in ("cgroupfs", "systemd")):
        raise ValueError(f"cannot kill the processes in {name}: it is not the cgroup of a pod")
    # The kernel shows a process of another PID namespace as 0, and a signal to 0 goes to this process's own group.
    pids = processes_below(name, tree or hierarchy()) - {0}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
