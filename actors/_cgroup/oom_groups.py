"""Sets memory.oom.group of containers' scopes again: systemd resets it at a daemon-reload and with each new limit.

Source: systemd.scope(5) on OOMPolicy=. The runtime writes the file, and the unit's own property stays `continue`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from actors._cgroup.fs import pod_cgroup_of
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.limits import write
from proto.agent.settings import Settings
from proto.v1 import Pod

FILE = "memory.oom.group"


def restore(pod: Pod, container_ids: Collection[str], settings: Settings, tree: Hierarchy | None = None) -> list[str]:
    """Have the kernel kill these running containers as a whole, if it should. Return the IDs of those it would not.

    Only systemd's scopes lose that. What ends meanwhile is left out.
    """
    tree = tree or hierarchy()
    name = pod_cgroup_of(pod, settings) if settings.cgroup_driver == "systemd" and tree.unified else ""
    if not name or settings.single_process_oom_kill:
        return []
    above = tree.mounts[""] + name
    found: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        for unit in os.listdir(above):
            identity = unit.removesuffix(".scope").rpartition("-")[2]
            if unit.endswith(".scope") and identity in container_ids and _restore(f"{above}/{unit}/{FILE}"):
                found.append(identity)
    return found


def _restore(file: str) -> bool:
    with contextlib.suppress(OSError):
        if Path(file).read_text().strip() == "0":
            write(file, "1")
            return True
    return False
