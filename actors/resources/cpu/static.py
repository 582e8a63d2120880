"""The static policy: which CPUs a container gets and keeps (pkg/kubelet/cm/cpumanager/policy_static.go). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors._host.restart import is_sidecar
from actors.resources.cpu.assign import NoCpusError, take_distributed, take_packed
from actors.resources.cpu.hints import cpu_hints
from actors.resources.cpu.options import Options
from actors.resources.cpu.requests import Requests
from actors.resources.cpu.state import State
from actors.resources.errors import PolicyError
from actors.resources.machine.cpusets import Cpus, printed
from actors.resources.machine.topology import Topology
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.pod_level import EmptyPoolError, has_own_resources
from actors.resources.model.provider import AllocationError
from proto.v1 import Container, Pod

_NONE: Cpus = frozenset()


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Decides on a State, which it changes. The topology is that at the start of the process."""

    topology: Topology
    options: Options
    reserved: Cpus
    """CPUs that no container has alone."""
    requests: Requests
    pod_scope: bool = False
    """topologyManagerScope is `pod`."""

    @property
    def allocatable(self) -> Cpus:
        """CPUs that containers can have alone."""
        return self.topology.ids - self.reserved

    def initial(self) -> State:
        """The state of a node without pods."""
        return State(self.allocatable if self.options.strict_reservation else self.topology.ids)

    def problem(self, state: State) -> str:
        """Why a state from the file cannot be used, in the kubelet's words. Empty when it can be."""
        shared, known = printed(state.shared), self.initial().shared
        if not state.shared and not self.options.strict_reservation:
            return "default cpuset cannot be empty"  # the kubelet also refuses a full node with strict reservation
        if self.options.strict_reservation and self.reserved & state.shared:
            common = printed(self.reserved & state.shared)
            return f'some of strictly reserved cpus: "{common}" are present in defaultCpuSet: "{shared}"'
        if not self.options.strict_reservation and not self.reserved <= state.shared:
            return f'not all reserved cpus: "{printed(self.reserved)}" are present in defaultCpuSet: "{shared}"'
        if found := _overlap(state):
            return found
        containers = (cpus for sets in state.containers.values() for cpus in sets.values())
        total = state.shared.union(*state.pods.values(), *containers)
        if total != known:
            return (
                f'current set of available CPUs "{printed(known)}" doesn\'t match with CPUs in state "{printed(total)}"'
            )
        return ""

    def container_hints(self, state: State, pod: Pod, container: Container) -> Hints:
        """Hints for one container."""
        count = self.requests.of_container(pod, container)
        if count == 0:
            return {}
        held = state.of(pod.metadata.uid, container.name)
        if held is None:
            return {"cpu": self._hints(self._available(state), reusable(state, pod), count)}
        return {"cpu": self._hints(held, _NONE, count) if len(held) == count else []}

    def pod_hints(self, state: State, pod: Pod) -> Hints:
        """Hints for the pod as a whole."""
        count = self.requests.of_pod(pod)
        if count == 0:
            return {}
        uid = pod.metadata.uid
        own = state.pods.get(uid)
        if own is not None:
            return {"cpu": self._hints(own, _NONE, count) if len(own) == count else []}
        if has_own_resources(pod) and self._pool_problem(pod):
            return {"cpu": []}
        held = _NONE
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            cpus = state.of(uid, container.name)
            if cpus is not None and len(cpus) != self.requests.of_container(pod, container):
                return {"cpu": []}
            held |= cpus or _NONE
        if len(held) == count:
            return {"cpu": self._hints(held, _NONE, count)}
        return {"cpu": self._hints(self._available(state), reusable(state, pod) | held, count)}

    def allocate(self, state: State, pod: Pod, container: Container, affinity: Hint) -> bool:
        """Assign CPUs. False when nothing changes. Raises AllocationError, and changes nothing then."""
        if self.takes_whole(pod):
            return self._allocate_pod(state, pod, affinity)
        count = self.requests.of_container(pod, container)
        uid = pod.metadata.uid
        # The kubelet checks whole cores before this, and so rejects running pods of a full node after a restart.
        if count == 0 or state.of(uid, container.name) is not None:
            return False
        self._check_cores(state, count)
        cpus = self._chosen(self._available(state) | reusable(state, pod), count, affinity)
        state.shared -= cpus
        state.assign(uid, container.name, cpus)
        return True

    def holds(self, state: State, pod: Pod) -> bool:
        """Return True when no container of the pod lacks CPUs of its own that it asks for."""
        uid, containers = pod.metadata.uid, (*pod.spec.init_containers, *pod.spec.containers)
        if self.takes_whole(pod):
            return uid in state.pods and all(state.of(uid, one.name) is not None for one in containers)
        asking = (one for one in containers if self.requests.of_container(pod, one) > 0)
        return all(state.of(uid, one.name) is not None for one in asking)

    def takes_whole(self, pod: Pod) -> bool:
        """True for a pod that gets its CPUs at once, for all containers."""
        return self.pod_scope and self.requests.pod_level and has_own_resources(pod)

    def is_exclusive(self, state: State, pod: Pod, container: Container) -> bool:
        """True for a container that shares its CPUs with no other one."""
        held = state.of(pod.metadata.uid, container.name)
        return held is not None and self.requests.of_container(pod, container) > 0

    def take(self, available: Cpus, count: int) -> Cpus:
        """Choose CPUs by the options. Raises NoCpusError."""
        spread = self.options.distribute_across_cores
        if self.options.distribute_across_numa:
            group = self.topology.cpus_per_core if self.options.full_pcpus_only else 1
            return take_distributed(self.topology, available, count, group, spread=spread)
        by_cache = self.options.prefer_align_by_cache
        return take_packed(self.topology, available, count, spread=spread, by_cache=by_cache)

    def _allocate_pod(self, state: State, pod: Pod, affinity: Hint) -> bool:
        """Take the pod's CPUs at once, and divide them among its containers (KEP-5526)."""
        count = self.requests.of_pod(pod)
        held = state.pods.get(pod.metadata.uid)
        if held is not None:
            return self._complete(state, pod, held)
        if count == 0:
            return False
        if problem := self._pool_problem(pod):
            raise AllocationError("EmptyPodSharedPoolError", problem)
        self._check_cores(state, count)
        cpus = self._chosen(self._available(state), count, affinity)
        parts = self._divided(pod, cpus)
        state.shared -= cpus
        state.pods[pod.metadata.uid] = cpus
        for name, part in parts.items():
            state.assign(pod.metadata.uid, name, part)
        return True

    def _complete(self, state: State, pod: Pod, held: Cpus) -> bool:
        """Assign what is missing: the kubelet writes the pod and its containers one after the other."""
        known = state.containers.get(pod.metadata.uid, {})
        if all(one.name in known for one in (*pod.spec.init_containers, *pod.spec.containers)):
            return False
        parts = self._divided(pod, held)
        if self._fits(pod, held, parts | known):
            parts |= known
        state.shared |= _NONE.union(*known.values()) - held
        for name, part in parts.items():
            state.assign(pod.metadata.uid, name, part)
        return True

    def _fits(self, pod: Pod, held: Cpus, parts: Mapping[str, Cpus]) -> bool:
        """True for parts of the pod's CPUs of the size asked for, no two of which run at once on the same CPU."""
        init = pod.spec.init_containers
        alone = {one.name: self.requests.of_container(pod, one) for one in (*init, *pod.spec.containers)}
        if any(count and len(parts[name]) != count for name, count in alone.items()):
            return False
        lasting = [parts[one.name] for one in (*filter(is_sidecar, init), *pod.spec.containers) if alone[one.name]]
        return sum(map(len, lasting)) == len(_NONE.union(*lasting)) and _NONE.union(*parts.values()) <= held

    def _divided(self, pod: Pod, cpus: Cpus) -> dict[str, Cpus]:
        """Each container's part. Containers without exclusive CPUs have what the others leave."""
        parts: dict[str, Cpus] = {}
        left = cpus
        try:
            for container in pod.spec.init_containers:
                count = self.requests.of_container(pod, container)
                if is_sidecar(container):
                    if count:
                        parts[container.name] = self.take(left, count)
                        left -= parts[container.name]
                else:
                    parts[container.name] = self.take(left, count) if count else left
            for container in pod.spec.containers:
                if count := self.requests.of_container(pod, container):
                    parts[container.name] = self.take(left, count)
                    left -= parts[container.name]
        except NoCpusError as error:
            raise _unexpected(error) from error
        every = (*pod.spec.init_containers, *pod.spec.containers)
        return {container.name: parts.get(container.name, left) for container in every}

    def _available(self, state: State) -> Cpus:
        return state.shared - self.reserved

    def _check_cores(self, state: State, count: int) -> None:
        """Raise AllocationError if full-pcpus-only is set and the CPUs are no whole cores."""
        if not self.options.full_pcpus_only:
            return
        per_core = self.topology.cpus_per_core
        if count % per_core:
            raise AllocationError(
                "SMTAlignmentError",
                f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}",
            )
        free = len(state.shared - self.topology.with_siblings(self.reserved))
        if count > free:
            raise AllocationError(
                "SMTAlignmentError",
                "SMT Alignment Error: not enough free physical CPUs: "
                f"available physical CPUs = {free}, requested CPUs = {count}, CPUs per core = {per_core}",
            )

    def _chosen(self, available: Cpus, count: int, affinity: Hint) -> Cpus:
        """CPUs of the affinity's NUMA nodes first, then others."""
        first = _NONE
        try:
            if affinity.nodes is not None:
                near = available & self._near(affinity.nodes)
                first = self.take(near, min(count, len(near)))
            return first | self.take(available - first, count - len(first))
        except NoCpusError as error:
            raise _unexpected(error) from error

    def _near(self, nodes: frozenset[int]) -> Cpus:
        if self.options.align_by_socket:
            return self.topology.in_sockets(self.topology.sockets_of(nodes))
        return self.topology.in_nodes(nodes)

    def _hints(self, available: Cpus, again: Cpus, count: int) -> list[Hint]:
        return cpu_hints(self.topology, available, again, count, by_socket=self.options.align_by_socket)

    def _pool_problem(self, pod: Pod) -> str:
        try:
            self.requests.check_pool(pod)
        except EmptyPoolError as error:
            return str(error)
        return ""


def reserved_cpus(policy: StaticPolicy, listed: Cpus, count: int) -> Cpus:
    """The CPUs to reserve: those of reservedSystemCPUs, or `count` by the options. Raises PolicyError."""
    if unknown := listed - policy.topology.ids:
        raise PolicyError(
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {min(unknown)}"
        )
    if listed:
        return listed
    if count < 1:
        raise PolicyError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
        )
    try:
        return policy.take(policy.topology.ids, count)
    except NoCpusError as error:
        raise PolicyError(
            f"[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal {count})"
        ) from error


def reusable(state: State, pod: Pod) -> Cpus:
    """CPUs of the pod's init containers that end before the next container of the pod starts."""
    found = _NONE
    for container in pod.spec.init_containers:
        held = state.of(pod.metadata.uid, container.name) or _NONE
        found = found - held if is_sidecar(container) else found | held
    return found.difference(*(state.of(pod.metadata.uid, one.name) or _NONE for one in pod.spec.containers))


def _overlap(state: State) -> str:
    """Names a CPU set that overlaps with the shared pool, or two pods with a CPU in common.

    The kubelet looks for containers in the shared pool alone.
    """
    held = [(f"pod: {uid}", cpus) for uid, cpus in state.pods.items()]
    for uid, sets in state.containers.items():
        held += [(f"pod: {uid}, container: {name}", cpus) for name, cpus in sets.items()]
    for who, cpus in held:
        if cpus & state.shared:
            return f'{who} cpuset: "{printed(cpus)}" overlaps with default cpuset "{printed(state.shared)}"'
    owners: dict[int, str] = {}
    for uid in {**state.containers, **state.pods}:
        for cpu in state.pods.get(uid, _NONE).union(*state.containers.get(uid, {}).values()):
            if owners.setdefault(cpu, uid) != uid:
                return f"pods {owners[cpu]} and {uid} both have CPU {cpu}"
    return ""


def _unexpected(error: Exception) -> AllocationError:
    return AllocationError("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
