"""Disk use of the pods' logs, by a walk of the log directory at the lowest CPU priority. Blocks."""

from __future__ import annotations

import os

from actors._host.files.disk_use import DiskUse, Walk, yield_to_others


def pod_logs(pod_logs_dir: str, deadline: float) -> dict[str, dict[str, DiskUse]]:
    """Disk use by pod UID and container. At `deadline`, monotonic, the walk ends with what was counted until then."""
    yield_to_others()
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
