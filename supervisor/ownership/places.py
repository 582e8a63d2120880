"""Lists the directories and cgroups that one agent owns, each with the flag that chooses it. Pure.

The cgroup of all pods is one directory in cgroup v2, and one directory in each hierarchy of cgroup v1.
"""

from __future__ import annotations

from typing import NamedTuple

from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.names import qos_cgroup
from proto.agent.settings import Settings


class Place(NamedTuple):
    """One directory that an agent owns."""

    label: str
    """Its name in messages. The directories of one cgroup have the same label."""
    option: str
    """The flag that chooses it."""
    path: str
    cgroup: bool = False
    """It is a cgroup, so that it also conflicts with cgroups above and below it."""


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
    # Pods of class Guaranteed have no QoS cgroup of their own, so theirs is the parent of all.
    return qos_cgroup(settings.cgroup_driver, settings.cgroup_root, "Guaranteed")
