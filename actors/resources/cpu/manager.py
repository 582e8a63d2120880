"""CpuManager, the Provider of CPUs: policy `none` or `static`, and the state file."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from actors._metrics.kubelet import CPU_PINNING_ERRORS, CPU_PINNINGS
from actors.resources.cpu.alignment import Alignment
from actors.resources.cpu.options import Options, check_fit, parse_options
from actors.resources.cpu.requests import Requests
from actors.resources.cpu.state import State, state_file
from actors.resources.cpu.static import StaticPolicy, reserved_cpus
from actors.resources.errors import PolicyError
from actors.resources.machine.cpusets import Cpus, printed
from actors.resources.machine.topology import Topology
from actors.resources.model.counting import Counted, Pinnings
from actors.resources.model.hints import Hint, Hints
from actors.resources.model.provider import Series, write_failure
from proto.resources.grants import Grant
from proto.v1 import Container, Pod
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

NONE, STATIC = "none", "static"

WRITE_S = 10.0
"""Longest wait for the state file's disk, in seconds."""


@dataclass(frozen=True, kw_only=True)
class CpuSettings:
    """The settings of the CPU manager, by their names in KubeletConfiguration."""

    policy: str = NONE
    options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: Cpus = frozenset()
    """reservedSystemCPUs."""
    reserved_count: int = 0
    """CPUs of kubeReserved and systemReserved, rounded up. Not read when `reserved_cpus` has some."""
    alpha_options: bool = False
    """Gate CPUManagerPolicyAlphaOptions."""
    beta_options: bool = True
    """Gate CPUManagerPolicyBetaOptions."""
    pod_level: bool = False
    """Gate PodLevelResourceManagers."""
    topology_policy: str = NONE
    topology_scope: str = "container"


class CpuManager:
    """Exclusive CPUs of containers. With policy `none` it grants nothing."""

    def __init__(
        self,
        topology: Topology,
        settings: CpuSettings,
        directory: str,
        blocking: Callable[..., Awaitable[Any]],
        counted: Counted | None = None,
    ) -> None:
        """Read the state file in `directory` and write it if it is missing. Blocks on the disk.

        `blocking`: that of the actor; it starts the write at the call. Raises PolicyError, OSError.
        """
        counted = counted or Counted()
        self._pinnings = Pinnings(CPU_PINNINGS, CPU_PINNING_ERRORS, counted)
        self._blocking = blocking
        self._file = state_file(directory, settings.policy, pod_level=settings.pod_level)
        self._policy = _policy(topology, settings)
        options = self._policy.options if self._policy is not None else Options()
        self._alignment = Alignment(topology, options, counted)
        self._state, self._number = State(), 0
        self._restore()

    @property
    def shared(self) -> Cpus:
        """CPUs of the containers without exclusive ones. Empty with policy `none`."""
        return self._state.shared

    @property
    def allocatable(self) -> Cpus:
        """CPUs that containers can have alone (podresources API). Empty with policy `none`."""
        return self._policy.allocatable if self._policy is not None else frozenset()

    def series(self) -> tuple[Series, ...]:
        """The series of aligned containers that begin with 0."""
        return self._alignment.series()

    def exclusive(self, pod: Pod, container: Container) -> Cpus:
        """CPUs that the container has alone (podresources API)."""
        if self._policy is None or not self._policy.is_exclusive(self._state, pod, container):
            return frozenset()
        return self._state.of(pod.metadata.uid, container.name) or frozenset()

    def container_hints(self, pod: Pod, container: Container) -> Hints:
        """See Provider."""
        return self._policy.container_hints(self._state, pod, container) if self._policy is not None else {}

    def pod_hints(self, pod: Pod) -> Hints:
        """See Provider."""
        return self._policy.pod_hints(self._state, pod) if self._policy is not None else {}

    async def allocate(self, pod: Pod, container: Container, affinity: Hint) -> None:
        """See Provider. CPUs that cannot be written are not assigned."""
        if self._policy is None:
            return
        asks, whole = self._policy.requests.of_container(pod, container) > 0, self._policy.takes_whole(pod)
        with (
            self._pinnings.asked(pod, container) if asks else nullcontext(),
            self._alignment.asked(pod, container) if asks and not whole else nullcontext(),
        ):
            await self._allocate(self._policy, pod, container, affinity)

    async def _allocate(self, policy: StaticPolicy, pod: Pod, container: Container, affinity: Hint) -> None:
        uid = pod.metadata.uid
        had_all = uid in self._state.pods
        if not policy.allocate(self._state, pod, container, affinity):
            return
        try:
            await self._blocking(WRITE_S, self._file.write, self._next(), self._file.content(self._state))
        except (OSError, ActorError) as error:
            if uid in self._state.pods:
                self._state.remove_pod(uid)
            else:
                self._state.remove_container(uid, container.name)
            raise write_failure(self._file.path, error) from error
        if not policy.takes_whole(pod):
            self._alignment.given(self._state.of(uid, container.name) or frozenset(), uid, container.name)
        elif not had_all:
            self._alignment.given(self._state.pods.get(uid, frozenset()), uid, "")

    def holds(self, pod: Pod) -> bool:
        """Return True when no container of the pod lacks CPUs of its own that it asks for."""
        return self._policy is None or self._policy.holds(self._state, pod)

    def release(self, pod_uid: str) -> None:
        """See Provider. The file follows later: after a kill `retain` frees the pod again."""
        if self._state.remove_pod(pod_uid):
            self._write_later()

    def retain(self, pod_uids: Collection[str]) -> None:
        """See Provider."""
        gone = {*self._state.containers, *self._state.pods}.difference(pod_uids)
        for uid in sorted(gone):
            log.info("pod %s is gone; its CPUs are free again", uid)
            self._state.remove_pod(uid)
        if gone:
            self._write_later()

    def grant(self, pod: Pod, container: Container) -> Grant:
        """See Provider. A container without exclusive CPUs gets the shared ones."""
        if self._policy is None:
            return Grant()
        held = self._state.of(pod.metadata.uid, container.name)
        return Grant(
            cpus=printed(self._state.shared if held is None else held),
            exclusive_cpus=self._policy.is_exclusive(self._state, pod, container),
        )

    def _restore(self) -> None:
        known = self._file.load()
        if known is None or (self._policy is not None and known == State()):
            self._state = self._policy.initial() if self._policy is not None else State()
            self._file.write(self._next(), self._file.content(self._state))
        elif self._policy is not None:
            if problem := self._policy.problem(known):
                raise self._file.refused(problem)
            self._state = known

    def _write_later(self) -> None:
        """Start a write. Its failure does no harm: the file then shows CPUs as held that are free."""

        def write(number: int, content: bytes) -> None:
            try:
                self._file.write(number, content)
            except OSError as error:
                log.warning(
                    "cannot write %s: %s; it shows released CPUs as held until the next write", self._file.path, error
                )

        self._blocking(WRITE_S, write, self._next(), self._file.content(self._state))

    def _next(self) -> int:
        self._number += 1
        return self._number


def _policy(topology: Topology, settings: CpuSettings) -> StaticPolicy | None:
    """The static policy; None for policy `none`. Raises PolicyError."""
    if settings.policy == NONE:
        if settings.options:
            raise PolicyError("None policy: received unsupported options=" + ", ".join(sorted(settings.options)))
        return None
    if settings.policy != STATIC:
        raise PolicyError(f'unknown policy: "{settings.policy}"')
    options = parse_options(settings.options, alpha=settings.alpha_options, beta=settings.beta_options)
    check_fit(options, topology, settings.topology_policy)
    policy = StaticPolicy(
        topology, options, frozenset(), Requests(settings.pod_level), pod_scope=settings.topology_scope == "pod"
    )
    return replace(policy, reserved=reserved_cpus(policy, settings.reserved_cpus, settings.reserved_count))
