"""The directories that an agent owns and no second agent may use, with the flag that chooses each. Pure.

A pod cgroup root is one directory in each hierarchy of cgroup v1, and one in cgroup v2.
"""

from __future__ import annotations

from typing import NamedTuple

from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.names import qos_cgroup
from proto.agent.settings import Settings


class Place(NamedTuple):
    """One directory, with its name for messages. Directories of one cgroup have the same `label`."""

    label: str
    option: str
    path: str
    cgroup: bool = False


def places(settings: Settings, tree: Hierarchy) -> tuple[Place, ...]:
    """The directories and cgroups that an agent with these settings owns."""
    found = [
        Place(f"root directory {settings.root_dir}", "--root-dir", settings.root_dir),
        Place(f"pod logs {settings.pod_logs_dir}", "--pod-logs-dir", settings.pod_logs_dir),
        Place(f"container logs {settings.container_logs_dir}", "--container-logs-dir", settings.container_logs_dir),
    ]
    if name := pods_cgroup(settings):
        found += [Place(f"cgroup {name}", "--cgroup-root", path, cgroup=True) for path in tree.paths(name)]
    return tuple(found)


def pods_cgroup(settings: Settings) -> str:
    """The cgroup of all pods, `/kubepods` by default; empty if the agent makes none."""
    if not settings.cgroups_per_qos:
        return ""
    return qos_cgroup(settings.cgroup_driver, settings.cgroup_root, "Guaranteed")
