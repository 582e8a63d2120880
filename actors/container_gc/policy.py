"""Decides which dead containers and sandboxes to remove. Pure; times are Unix seconds.

Source: pkg/kubelet/kuberuntime/kuberuntime_gc.go of Kubernetes 1.36 and
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from actors._host.node.plans import Basis
from proto.pods.pod_workers import PodWorkerState, PodWorkerStates


@dataclass(frozen=True)
class Pods:
    """The pod workers' states of pods, with the questions of a collection."""

    states: dict[str, PodWorkerState] = field(default_factory=dict)
    sources_ready: bool = False
    own: Collection[str] = frozenset()
    """UIDs with a mark of ours (actors/_host/files/own_pods.py), among the pods of this pass."""
    waiting: Collection[str] = frozenset()
    """UIDs of pods that get a worker soon."""

    @classmethod
    def of(cls, answer: PodWorkerStates, own: Collection[str] = frozenset()) -> Pods:
        """Build it from the answer to ListPodWorkers."""
        return cls({state.uid: state for state in answer.pods}, answer.sources_ready, own, frozenset(answer.waiting))

    def is_foreign(self, uid: str) -> bool:
        """Return True for a pod without worker and without mark: it may be another agent's and is left alone."""
        return uid not in self.states and uid not in self.own

    def is_gone(self, uid: str) -> bool:
        """Return True when all of the pod must go: it is ours, it has ended, and no source has it any more.

        False for every pod until all sources have answered once.
        """
        if not self.sources_ready or self.is_foreign(uid):
            return False
        state = self.states.get(uid)
        if state is None:
            return uid not in self.waiting
        return state.deleted and state.stage == "terminated"

    def has_finished(self, uid: str) -> bool:
        """Return True when it is gone, and its worker needs its directory no more."""
        state = self.states.get(uid)
        return self.is_gone(uid) and (state is None or state.released)

    def has_no_use(self, uid: str) -> bool:
        """Return True when the pod's containers, sandboxes and logs must go: it is gone, or it was evicted.

        An evicted pod counts once all of its end has been reported. Its directory stays while a source has it.
        """
        state = self.states.get(uid)
        evicted = self.sources_ready and state is not None and state.evicted and state.released
        return evicted or self.is_gone(uid)

    def has_ended(self, uid: str) -> bool:
        """Return True when the pod is gone, or has ended while a source still has it (a Job's succeeded pod)."""
        state = self.states.get(uid)
        return self.is_gone(uid) or (self.sources_ready and state is not None and state.stage == "terminated")


STARTING_S = 120.0
"""Longest time from a container's creation to its start: the deadline of a call to the runtime."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The kubelet's three limits. A negative count is no limit."""

    min_age_s: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A pod's container in the runtime's list."""

    id: str
    pod_uid: str
    name: str
    attempt: int
    created: float
    sandbox_id: str
    state: str
    """`created`, `running`, `exited` or `unknown`."""
    log_path: str = ""
    """Path of its current log; rotated files have it as a prefix."""
    pod_name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """A pod sandbox in the runtime's list."""

    id: str
    pod_uid: str
    attempt: int
    created: float
    ready: bool
    pod_name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The findings of one pass on the node."""

    containers: list[ContainerView]
    sandboxes: list[SandboxView]
    uids: dict[str, set[str]]
    """Place (`directory`, `logs`, `cgroup`, `runtime`) to UIDs of pods."""
    links: dict[str, str]
    """Dangling log symlinks: link name to the name of the pod's log directory."""

    def held(self, removed: Collection[str]) -> set[str]:
        """Return the pods with a container or sandbox left after the removal of these IDs."""
        containers = {one.pod_uid for one in self.containers if one.id not in removed}
        return containers | {one.pod_uid for one in self.sandboxes if one.id not in removed}


def containers_to_remove(
    containers: Iterable[ContainerView], pods: Pods, limits: Limits, now: float, *, ended_too: bool = False
) -> list[ContainerView]:
    """Return dead containers beyond the limits, and all dead ones of pods that are gone or evicted, oldest first.

    `ended_too`: also those of pods that have ended (eviction's reclaim). A unit is one container name of a pod. Its
    newest `max_per_pod_container` stay, for their exit codes and logs.
    """
    units: dict[tuple[str, str], list[ContainerView]] = {}
    for container in containers:
        if pods.is_foreign(container.pod_uid):
            continue
        if _is_dead(container, now) and container.created <= now - limits.min_age_s:
            units.setdefault((container.pod_uid, container.name), []).append(container)
    removed: list[ContainerView] = []
    finished = pods.has_ended if ended_too else pods.has_no_use
    for key in [key for key in units if finished(key[0])]:
        removed += units.pop(key)
    if limits.max_per_pod_container >= 0:
        removed += _trim(units, limits.max_per_pod_container)
    removed += _trim_total(units, limits.max_containers)
    return sorted(removed, key=_age)


def _is_dead(container: ContainerView, now: float) -> bool:
    if container.state == "created":  # it may be about to run, and would count as the newest dead one
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
    """Trim all units to `most` together: to equal shares of at least one, then the oldest of all."""
    total = sum(map(len, units.values()))
    if most < 0 or total <= most:
        return []
    removed = _trim(units, max(1, most // len(units)))
    # Attempts of different containers do not compare: a first one may have ended an hour before another's tenth.
    left = sorted((container for unit in units.values() for container in unit), key=lambda one: one.created)
    return removed + left[: max(0, len(left) - most)]


def sandboxes_to_remove(
    sandboxes: Iterable[SandboxView], holding: Callable[[str], bool], pods: Pods, *, ended_too: bool = False
) -> list[SandboxView]:
    """Return sandboxes that are not ready and have no container; a pod that stays keeps its newest sandbox.

    `holding` is True for the ID of a sandbox with containers. `ended_too`: as in containers_to_remove.
    """
    by_pod: dict[str, list[SandboxView]] = {}
    for sandbox in sandboxes:
        by_pod.setdefault(sandbox.pod_uid, []).append(sandbox)
    finished = pods.has_ended if ended_too else pods.has_no_use
    removed: list[SandboxView] = []
    for uid, own in by_pod.items():
        if pods.is_foreign(uid):
            continue
        own.sort(key=_age)
        candidates: Sequence[SandboxView] = own if finished(uid) else own[:-1]
        removed += [sandbox for sandbox in candidates if not sandbox.ready and not holding(sandbox.id)]
    return removed


REMOVED, SANDBOX_REMOVED = "ContainerRemoved", "SandboxRemoved"
"""Reasons of the pod's event for each container and each sandbox that is removed."""
PODLESS, EVICTED, OVER, IDLE = "its pod is gone", "its pod was evicted", "over the limits", "not needed"
"""Rules of removals."""


def rule(item: ContainerView | SandboxView, pods: Pods) -> str:
    """Return the rule by which a container or sandbox goes."""
    if pods.is_gone(item.pod_uid):
        return PODLESS
    if pods.has_no_use(item.pod_uid):
        return EVICTED
    return IDLE if isinstance(item, SandboxView) else OVER


def container_verdict(one: ContainerView, pods: Pods, limits: Limits, now: float) -> str:
    """Return the reason why a container stays that is not removed."""
    if pods.is_foreign(one.pod_uid):
        return "another agent's"
    if one.state == "running":
        return "running"
    if not _is_dead(one, now):
        return "about to start"
    return "below the minimum age" if one.created > now - limits.min_age_s else "one of the newest"


def basis(seen: Seen, going: Sequence[ContainerView | SandboxView], pods: Pods, limits: Limits, now: float) -> Basis:
    """Return the facts of a plan or a pass that removes these."""
    verdicts = {one.id: container_verdict(one, pods, limits, now) for one in seen.containers}
    verdicts |= {one.id: "ready" if one.ready else "with containers, or the newest" for one in seen.sandboxes}
    verdicts |= {one.id: rule(one, pods) for one in going}
    names = {one.id: f"container {one.pod_uid}/{one.name}" for one in seen.containers}
    names |= {one.id: f"sandbox of {one.pod_uid}" for one in seen.sandboxes}
    return Basis(tuple(one.id for one in going), verdicts, names=names)


def to_remove(
    seen: Seen, pods: Pods, limits: Limits, now: float, *, ended_too: bool = False
) -> tuple[list[ContainerView], list[SandboxView]]:
    """Return the containers and sandboxes that go if every container can be removed."""
    dead = containers_to_remove(seen.containers, pods, limits, now, ended_too=ended_too)
    return dead, idle_sandboxes(seen, pods, {one.id for one in dead}, ended_too=ended_too)


def idle_sandboxes(seen: Seen, pods: Pods, removed: Collection[str], *, ended_too: bool = False) -> list[SandboxView]:
    """Return the sandboxes that go after the removal of these containers."""
    kept = {one.sandbox_id for one in seen.containers if one.id not in removed}
    return sandboxes_to_remove(seen.sandboxes, kept.__contains__, pods, ended_too=ended_too)


def removal_message(one: ContainerView, why: str, layer_bytes: int | None, log_bytes: int, now: float) -> str:
    """Return the message of a removal's event: container, bytes, rule and age."""
    size = "an unknown number of" if layer_bytes is None else str(layer_bytes)
    age_s = max(0, int(now - one.created))
    return (
        f"Removed dead container {one.name} ({one.id[:12]}) of {size} bytes and {log_bytes} bytes of logs: "
        f"{why}, created {age_s} s ago"
    )


def sandbox_message(one: SandboxView, why: str, now: float) -> str:
    """Return the message of a sandbox removal's event."""
    return (
        f"Removed sandbox {one.id[:12]} (attempt {one.attempt}): {why}, created {max(0, int(now - one.created))} s ago"
    )


def _age(item: ContainerView | SandboxView) -> tuple[int, float]:
    """Sort key of one name's containers, oldest first. The attempt comes first, because clocks may be set back."""
    return (item.attempt, item.created)


def log_directory_uid(name: str) -> str:
    """Return the pod UID in a log directory's name: NAMESPACE_NAME_UID, or UID alone (before Kubernetes 1.14)."""
    return name.split("_", 2)[-1]  # namespaces and names have no underscore


def stale_links(links: Mapping[str, str], running: Collection[str], pods: Pods) -> list[str]:
    """Return the dangling symlinks (Seen.links) to remove.

    A running container may still write its log, and a foreign pod's link belongs to another agent.
    """
    return [
        link
        for link, directory in links.items()
        if symlink_container_id(link) not in running and not pods.is_foreign(log_directory_uid(directory))
    ]


def symlink_container_id(name: str) -> str:
    """Return the container ID in a symlink's name, NAME_NAMESPACE_CONTAINER-ID.log; empty in a shortened name."""
    base = name.removesuffix(".log")
    identity = base.rpartition("-")[2] if "-" in base else ""
    return identity if len(identity) == 64 else ""
