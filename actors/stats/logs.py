"""What pods' logs take, by walking the log directory in a thread that yields to everything else. Blocks."""

from __future__ import annotations

import os

from actors._host.files.disk_use import DiskUse, Walk, lower_cpu_priority


def pod_logs(pod_logs_dir: str, deadline: float) -> dict[str, dict[str, DiskUse]]:
    """By pod UID and container. `deadline`: monotonic time at which what was counted until then is the answer."""
    lower_cpu_priority()
    walk = Walk(deadline)
    return {
        name.rpartition("_")[2]: {
            container: walk.measure(f"{pod_logs_dir}/{name}/{container}")
            for container in _names(f"{pod_logs_dir}/{name}")
        }
        for name in _names(pod_logs_dir)
    }


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
