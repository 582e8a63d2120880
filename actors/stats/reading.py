"""Reads the cgroups of the node, its pods and their containers, and the pods' network interfaces. Blocks.

It reads about fifteen files for each pod, without a call of the runtime and without a helper process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from actors._cgroup import figures, fs
from actors._cgroup.figures import Figures
from actors._cgroup.hierarchy import Hierarchy, own_cgroups
from actors._cgroup.names import QOS_CLASSES, qos_cgroup
from actors._host import interfaces
from actors._host.interfaces import Interface
from actors.stats.inventory import Identity, container_id
from proto.agent.settings import Settings


@dataclass(slots=True)
class ContainerReading:
    """A container, or the sandbox's own process."""

    identity: Identity
    cgroup: str
    figures: Figures
    pids: list[int]


@dataclass(slots=True)
class PodReading:
    """A pod that the runtime knows."""

    uid: str
    name: str
    namespace: str
    started: float
    cgroup: str
    figures: Figures
    containers: list[ContainerReading] = field(default_factory=list)
    sandbox: ContainerReading | None = None
    interfaces: list[Interface] = field(default_factory=list)
    """Empty in the host's network."""


@dataclass(slots=True)
class SystemReading:
    """A cgroup beside those of containers: `kubelet` is the agent's own, `pods` that of all pods."""

    name: str
    cgroup: str
    created: float
    figures: Figures


@dataclass(slots=True)
class Reading:
    """The node at one moment."""

    time: float
    node: Figures
    interfaces: list[Interface]
    ancestors: dict[str, Figures]
    """The cgroups above all pods: `kubepods` first, then those of the QoS classes."""
    pods: list[PodReading]
    system: list[SystemReading] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PodCgroups:
    """Cgroup paths: of pods by UID, and of their containers by pod UID and container ID."""

    pods: dict[str, str]
    containers: dict[str, dict[str, str]]

    @property
    def ids(self) -> set[str]:
        """IDs of all containers and sandboxes."""
        return {id_ for below in self.containers.values() for id_ in below}


def find(settings: Settings, tree: Hierarchy) -> PodCgroups:
    """Find the cgroups of pods and containers. Raises OSError."""
    pods = fs.list_pod_cgroups(settings, tree)
    below = {
        uid: {id_: f"{name}/{child}" for child in figures.children(name, tree) if (id_ := container_id(child))}
        for uid, name in pods.items()
    }
    return PodCgroups(pods, below)


def read(
    settings: Settings, tree: Hierarchy, found: PodCgroups, known: Mapping[str, Identity], *, detailed: bool = False
) -> Reading:
    """Read all figures. Cgroups that have gone since, and containers that the runtime does not know, are left out."""
    now = time.time()
    names = [qos_cgroup(settings.cgroup_driver, settings.cgroup_root, qos) for qos in QOS_CLASSES]
    ancestors = {name: one for name in names if (one := figures.read(name, tree, now, detailed=detailed))}
    host = interfaces.namespace("self")  # the agent is in the host's network namespace
    pods = [
        pod
        for uid, name in sorted(found.pods.items())
        if (pod := _read_pod(uid, name, tree, found.containers[uid], known, now, detailed, host))
    ]
    return Reading(
        time=now,
        node=figures.read("/", tree, now, detailed=detailed) or Figures(time=now),
        interfaces=interfaces.of_process("self"),
        ancestors=ancestors,
        pods=pods,
        # The guaranteed class has no cgroup of its own: its name is that of all pods.
        system=list(_read_system({"kubelet": _own_cgroup(tree), "pods": names[0]}, tree, now)),
    )


def _own_cgroup(tree: Hierarchy) -> str:
    """The agent's cgroup, such as that of its systemd unit. All its processes start in one cgroup."""
    return own_cgroups().get("" if tree.unified else "memory", "/")


def _read_system(names: Mapping[str, str], tree: Hierarchy, now: float) -> Iterator[SystemReading]:
    for name, cgroup in names.items():
        # The root would show the whole node as the agent.
        if cgroup != "/" and (own := figures.read(cgroup, tree, now)):
            yield SystemReading(name, cgroup, figures.created(cgroup, tree), own)


def _read_pod(
    uid: str,
    name: str,
    tree: Hierarchy,
    below: Mapping[str, str],
    known: Mapping[str, Identity],
    now: float,
    detailed: bool,
    host: int,
) -> PodReading | None:
    own = figures.read(name, tree, now, detailed=detailed)
    parts = [part for id_, cgroup in below.items() if (part := _read_part(known.get(id_), cgroup, tree, now, detailed))]
    if own is None or not parts:
        return None
    sandbox = next((part for part in parts if not part.identity.name), None)
    newest: dict[str, ContainerReading] = {}
    for part in sorted(parts, key=lambda part: part.identity.created):
        if part.identity.name:
            newest[part.identity.name] = part
    first = (sandbox or parts[0]).identity
    return PodReading(
        uid=uid,
        name=first.pod_name,
        namespace=first.namespace,
        started=first.created,
        cgroup=name,
        figures=own,
        containers=list(newest.values()),
        sandbox=sandbox,
        interfaces=_interfaces(parts, host),
    )


def _read_part(
    identity: Identity | None, cgroup: str, tree: Hierarchy, now: float, detailed: bool
) -> ContainerReading | None:
    if identity is None:
        return None
    pids = figures.processes(cgroup, tree)
    # A pod's figures include its sandbox's; only cAdvisor's metrics show them separately.
    wanted = bool(identity.name) or detailed
    own = figures.read(cgroup, tree, now, detailed=detailed) if wanted else Figures(time=now)
    return ContainerReading(identity, cgroup, own, pids) if own else None


def _interfaces(parts: list[ContainerReading], host: int) -> list[Interface]:
    for part in parts:
        for pid in part.pids[:1]:
            inode = interfaces.namespace(pid)
            if inode and inode != host:
                return interfaces.of_process(pid)
    return []
