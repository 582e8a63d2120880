"""Which dead containers and sandboxes go. Pure; times are Unix seconds.

Source: pkg/kubelet/kuberuntime/kuberuntime_gc.go of Kubernetes 1.36 and
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proto.pods.pod_workers import PodWorkerState, PodWorkerStates


@dataclass(frozen=True)
class Pods:
    """What the pod workers say of pods, as the collection asks it."""

    states: dict[str, PodWorkerState] = field(default_factory=dict)
    sources_ready: bool = False
    own: Collection[str] = frozenset()
    """UIDs with a mark of ours (actors/_host/files/own_pods.py), among those that were looked at."""

    @classmethod
    def of(cls, answer: PodWorkerStates, own: Collection[str] = frozenset()) -> Pods:
        """From the answer to ListPodWorkers."""
        return cls({state.uid: state for state in answer.pods}, answer.sources_ready, own)

    def is_foreign(self, uid: str) -> bool:
        """Whether the pod may be another agent's: no worker has it, and it has no mark of ours. It is left alone."""
        return uid not in self.states and uid not in self.own

    def is_gone(self, uid: str) -> bool:
        """Whether nothing of the pod may stay: it is ours, and no source wants it any more and it has ended.

        Before every source has been seen once nobody can know that, and nothing is taken for gone.
        """
        if not self.sources_ready or self.is_foreign(uid):
            return False
        state = self.states.get(uid)
        return state is None or (state.deleted and state.stage == "terminated")

    def has_ended(self, uid: str) -> bool:
        """Whether the pod is gone, or runs no more though it is still wanted (a Job's pod that succeeded)."""
        state = self.states.get(uid)
        return self.is_gone(uid) or (self.sources_ready and state is not None and state.stage == "terminated")


STARTING_S = 120.0
"""From a container's creation to its start, at most: the runtime's deadline for a call."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The kubelet's three limits; negative counts are no limit."""

    min_age_s: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container of a pod as the runtime lists it."""

    id: str
    pod_uid: str
    name: str
    attempt: int
    created: float
    sandbox_id: str
    state: str
    """`created`, `running`, `exited` or `unknown`."""
    log_path: str = ""
    """Where its log is, under any of the names rotation gives it."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """A pod sandbox as the runtime lists it."""

    id: str
    pod_uid: str
    attempt: int
    created: float
    ready: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What one pass found on the node."""

    containers: list[ContainerView]
    sandboxes: list[SandboxView]
    uids: dict[str, set[str]]
    """UIDs of pods by place: `directory`, `logs`, `cgroup`, `runtime`."""
    links: dict[str, str]
    """Symlinks to logs that are not there: the name of the pod's log directory, by the link's name."""

    def held(self, removed: Collection[str]) -> set[str]:
        """Pods that the runtime still has something of once these containers and sandboxes, by ID, are gone."""
        containers = {one.pod_uid for one in self.containers if one.id not in removed}
        return containers | {one.pod_uid for one in self.sandboxes if one.id not in removed}


def containers_to_remove(
    containers: Iterable[ContainerView], pods: Pods, limits: Limits, now: float, *, ended_too: bool = False
) -> list[ContainerView]:
    """Dead containers beyond the limits, oldest first, and every dead one of a pod that is gone.

    `ended_too`: also all of pods that have ended (eviction's reclaim). A unit is a container name of a pod: of those
    the newest `max_per_pod_container` stay, for their exit codes and logs.
    """
    units: dict[tuple[str, str], list[ContainerView]] = {}
    for container in containers:
        if pods.is_foreign(container.pod_uid):
            continue
        if _is_dead(container, now) and container.created <= now - limits.min_age_s:
            units.setdefault((container.pod_uid, container.name), []).append(container)
    removed: list[ContainerView] = []
    finished = pods.has_ended if ended_too else pods.is_gone
    for key in [key for key in units if finished(key[0])]:
        removed += units.pop(key)
    if limits.max_per_pod_container >= 0:
        removed += _trim(units, limits.max_per_pod_container)
    removed += _trim_total(units, limits.max_containers)
    return sorted(removed, key=_age)


def _is_dead(container: ContainerView, now: float) -> bool:
    """One that was just created is about to run: taken for a dead one it would cost the run before its log."""
    if container.state == "created":
        return container.created <= now - STARTING_S
    return container.state != "running"


def _trim(units: dict[tuple[str, str], list[ContainerView]], keep: int) -> list[ContainerView]:
    removed = []
    for unit in units.values():
        unit.sort(key=_age, reverse=True)
        removed += unit[keep:]
        del unit[keep:]
    return removed


def _trim_total(units: dict[tuple[str, str], list[ContainerView]], most: int) -> list[ContainerView]:
    """Down to `most` over all units: first to an equal share each, of at least one, then the oldest of all."""
    total = sum(map(len, units.values()))
    if most < 0 or total <= most:
        return []
    removed = _trim(units, max(1, most // len(units)))
    left = sorted((container for unit in units.values() for container in unit), key=_age)
    return removed + left[: max(0, len(left) - most)]


def sandboxes_to_remove(
    sandboxes: Iterable[SandboxView], holding: Callable[[str], bool], pods: Pods, *, ended_too: bool = False
) -> list[SandboxView]:
    """Sandboxes that are not ready and have no container (`holding(sandbox_id)`); the newest of a pod that stays does.

    `ended_too` as in containers_to_remove.
    """
    by_pod: dict[str, list[SandboxView]] = {}
    for sandbox in sandboxes:
        by_pod.setdefault(sandbox.pod_uid, []).append(sandbox)
    finished = pods.has_ended if ended_too else pods.is_gone
    removed: list[SandboxView] = []
    for uid, own in by_pod.items():
        if pods.is_foreign(uid):
            continue
        own.sort(key=_age)
        candidates: Sequence[SandboxView] = own if finished(uid) else own[:-1]
        removed += [sandbox for sandbox in candidates if not sandbox.ready and not holding(sandbox.id)]
    return removed


def _age(item: ContainerView | SandboxView) -> tuple[int, float]:
    """Sorts oldest first: the attempt counts, since clocks may be set back."""
    return (item.attempt, item.created)


def log_directory_uid(name: str) -> str:
    """The pod UID in a log directory's name, NAMESPACE_NAME_UID; a name of another shape is the UID itself (as it was
    before Kubernetes 1.14)."""
    return name.rpartition("_")[2]


def stale_links(links: Mapping[str, str], running: Collection[str], pods: Pods) -> list[str]:
    """Of symlinks whose log is not there (Seen.links): those that go. The runtime may yet write the log of a container
    that is running; and a foreign pod's link is another agent's."""
    return [
        link
        for link, directory in links.items()
        if symlink_container_id(link) not in running and not pods.is_foreign(log_directory_uid(directory))
    ]


def symlink_container_id(name: str) -> str:
    """The container ID in a symlink's name, NAME_NAMESPACE_CONTAINER-ID.log; empty when the name was cut short."""
    base = name.removesuffix(".log")
    identity = base.rpartition("-")[2] if "-" in base else ""
    return identity if len(identity) == 64 else ""
