"""Reads the cgroups of the node, its pods and their containers, and the pods' network interfaces. Blocks.

It reads about fifteen files for each pod, without a call of the runtime and without a helper process. Without pod
cgroups (cgroupsPerQOS: false) a pod is its containers, wherever the runtime has put their cgroups.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from actors._cgroup import figures, fs
from actors._cgroup.figures import Figures
from actors._cgroup.hierarchy import Hierarchy, own_cgroups
from actors._cgroup.names import QOS_CLASSES, qos_cgroup
from actors._host import interfaces
from actors._host.interfaces import Interface
from actors.stats.inventory import Identity, container_id
from actors.stats.policy import bounded_sum
from proto.agent.settings import Settings

MAX_CGROUPS = 20_000
"""Most cgroups that a search for containers looks at."""


@dataclass(slots=True)
class ContainerReading:
    """A container, or the sandbox's own process."""

    identity: Identity
    cgroup: str
    """Empty when its figures are the runtime's, as those of an ordinary user's containers."""
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
    """Empty without pod cgroups: the figures are sums over its containers."""
    figures: Figures
    containers: list[ContainerReading] = field(default_factory=list)
    sandbox: ContainerReading | None = None
    interfaces: list[Interface] = field(default_factory=list)
    """Empty in the host's network."""


@dataclass(slots=True)
class SystemReading:
    """A cgroup beside those of containers: `kubelet` is the agent's own, `pods` that of all pods.

    The configuration names the others: `runtime` (--runtime-cgroups) and `misc` (systemCgroups).
    """

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
    ungrouped: dict[str, str] = field(default_factory=dict)
    """Without pod cgroups: those of all containers by ID."""

    @property
    def ids(self) -> set[str]:
        """IDs of all containers and sandboxes."""
        return {*self.ungrouped, *(id_ for below in self.containers.values() for id_ in below)}

    def by_pod(self, known: Mapping[str, Identity]) -> dict[str, dict[str, str]]:
        """The containers' cgroups by pod UID and container ID."""
        found: dict[str, dict[str, str]] = defaultdict(dict, self.containers)
        for id_, cgroup in self.ungrouped.items():
            if identity := known.get(id_):
                found[identity.pod_uid][id_] = cgroup
        return found


def find(settings: Settings, tree: Hierarchy) -> PodCgroups:
    """Find the cgroups of pods and containers. Raises OSError."""
    if not settings.cgroups_per_qos:
        return PodCgroups({}, {}, _find_containers(tree))
    pods = fs.list_pod_cgroups(settings, tree)
    below = {
        uid: {id_: f"{name}/{child}" for child in figures.children(name, tree) if (id_ := container_id(child))}
        for uid, name in pods.items()
    }
    return PodCgroups(pods, below)


def _find_containers(tree: Hierarchy) -> dict[str, str]:
    """Cgroups of containers by ID. A name below a container's cgroup counts as no container: a pod can choose it."""
    found: dict[str, str] = {}
    waiting, seen = deque([""]) if tree.path("memory", "") else deque[str](), 0
    while waiting and seen < MAX_CGROUPS:
        above = waiting.popleft()
        for child in figures.children(above, tree):
            seen += 1
            if id_ := container_id(child):
                found.setdefault(id_, f"{above}/{child}")
            else:
                waiting.append(f"{above}/{child}")
    return found


def read(
    settings: Settings,
    tree: Hierarchy,
    found: PodCgroups,
    known: Mapping[str, Identity],
    reported: Mapping[str, Figures] | None = None,
    *,
    detailed: bool = False,
) -> Reading:
    """Read all figures. Cgroups that have gone since, and containers that the runtime does not know, are left out.

    `reported`: the runtime's figures by container ID, for containers without a cgroup.
    """
    now = time.time()
    names = [qos_cgroup(settings.cgroup_driver, settings.cgroup_root, qos) for qos in QOS_CLASSES]
    ancestors = {name: one for name in names if (one := figures.read(name, tree, now, detailed=detailed))}
    host = interfaces.namespace("self")  # the agent is in the host's network namespace
    parts = {
        uid: [part for id_, name in below.items() if (part := _read_part(known.get(id_), name, tree, now, detailed))]
        for uid, below in found.by_pod(known).items()
    }
    for id_, own in (reported or {}).items():
        if (identity := known.get(id_)) and id_ not in found.ungrouped:
            parts.setdefault(identity.pod_uid, []).append(ContainerReading(identity, "", own, []))
    pods = []
    for uid, containers in sorted(parts.items()):
        cgroup = found.pods.get(uid, "")
        whole = figures.read(cgroup, tree, now, detailed=detailed) if cgroup else None
        if containers and (whole or not cgroup) and (pod := _pod(uid, cgroup, whole, containers, host)):
            pods.append(pod)
    return Reading(
        time=now,
        node=figures.read("/", tree, now, detailed=detailed) or Figures(time=now),
        interfaces=interfaces.of_process("self"),
        ancestors=ancestors,
        pods=pods,
        system=list(_read_system(_system_cgroups(settings, tree), tree, now)),
    )


def _own_cgroup(tree: Hierarchy) -> str:
    """The agent's cgroup, such as that of its systemd unit. All its processes start in one cgroup."""
    return own_cgroups().get("" if tree.unified else "memory", "/")


def _system_cgroups(settings: Settings, tree: Hierarchy) -> dict[str, str]:
    named = {"kubelet": _own_cgroup(tree), "runtime": settings.runtime_cgroups, "misc": settings.system_cgroups}
    # The root would show the whole node as the agent.
    found = {name: f"/{cgroup.strip('/')}" for name, cgroup in named.items() if cgroup.strip("/")}
    # The guaranteed class has no cgroup of its own: its name is that of all pods. Without pod cgroups the kubelet
    # takes the cgroup above it.
    pods = qos_cgroup(settings.cgroup_driver, settings.cgroup_root, "Guaranteed")
    return found | {"pods": pods if settings.cgroups_per_qos else os.path.dirname(pods)}


def _read_system(names: Mapping[str, str], tree: Hierarchy, now: float) -> Iterator[SystemReading]:
    for name, cgroup in names.items():
        if own := figures.read(cgroup, tree, now):
            yield SystemReading(name, cgroup, figures.created(cgroup, tree), own)


def _pod(uid: str, cgroup: str, whole: Figures | None, parts: list[ContainerReading], host: int) -> PodReading | None:
    """None without the pod's cgroup and without a container."""
    sandbox = next((part for part in parts if not part.identity.name), None)
    parts = sorted(parts, key=lambda part: part.identity.created)
    newest = {part.identity.name: part for part in parts if part.identity.name}
    whole = whole or _sum([one.figures for one in newest.values()])
    if whole is None:
        return None
    first = (sandbox or parts[0]).identity
    return PodReading(
        uid=uid,
        name=first.pod_name,
        namespace=first.namespace,
        started=first.created,
        cgroup=cgroup,
        figures=whole,
        containers=list(newest.values()),
        sandbox=sandbox,
        interfaces=_interfaces(parts, host),
    )


def _sum(containers: list[Figures]) -> Figures | None:
    """Sums without limits and stalled times, which cannot be added. None for no container."""
    if not containers:
        return None
    return Figures(
        time=containers[-1].time,
        cpu_ns=bounded_sum(one.cpu_ns for one in containers),
        memory_bytes=bounded_sum(one.memory_bytes for one in containers),
        working_set_bytes=bounded_sum(one.working_set_bytes for one in containers),
        rss_bytes=bounded_sum(one.rss_bytes for one in containers),
        page_faults=bounded_sum(one.page_faults for one in containers),
        major_page_faults=bounded_sum(one.major_page_faults for one in containers),
        swap_bytes=bounded_sum(one.swap_bytes for one in containers),
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
