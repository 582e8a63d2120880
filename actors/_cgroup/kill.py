"""Ending what still runs in the cgroup of a pod that is gone, as the kubelet does before it removes the cgroup.

Source: pkg/kubelet/cm/pod_container_manager_linux.go, tryKillingCgroupProcesses. A runtime that was killed while it
made a sandbox may not know of the process it made.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from actors._cgroup.hierarchy import Hierarchy, hierarchy


def kill_processes(name: str, tree: Hierarchy | None = None) -> int:
    """SIGKILL to every process in the pod's cgroup `name` and below; how many there were. Raises OSError."""
    if not os.path.basename(name).startswith(("pod", "kubepods-")):
        raise ValueError(f"{name} is no pod's cgroup")
    pids: set[int] = set()
    for path in (tree or hierarchy()).paths(name):
        for directory, _, _ in os.walk(path):
            with contextlib.suppress(FileNotFoundError):
                pids.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
