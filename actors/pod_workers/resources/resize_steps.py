"""Carries out a resize: UpdateContainerResources and writes to the pod's cgroup, in the kubelet's order.

Source: doPodResizeAction of pkg/kubelet/kuberuntime. Memory comes before CPU. The pod's cgroup grows before its
containers and shrinks after them. The runtime is told its limits before each write, and may refuse them. All steps are
idempotent, so after a kill the next step finishes the resize. `decide.resize` makes the plan.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from actors._cgroup import hierarchy
from actors._cgroup.fs import ensure, usage
from actors._cgroup.limits import Limits, read_limits
from actors._cgroup.quantities.cri import linux_container_resources
from actors._cgroup.quantities.resources import PodLimits, overhead_resources, pod_limits, with_pod_limits
from actors._cri.errors import CriError, RuntimeDown, Unimplemented
from actors.pod_workers.cri_config.container_config import linux_resources
from actors.pod_workers.cri_config.grants import lift_quota
from actors.pod_workers.cri_config.sandbox_config import pod_cgroup_parent
from actors.pod_workers.decide import resize
from actors.pod_workers.decide.resize import Amounts, CgroupSteps, ResizePlan, Resource, Update
from actors.pod_workers.model import metrics
from actors.pod_workers.model.allocation import PodResourceInfo, equal, resources_of
from actors.pod_workers.model.view import PodView
from actors.pod_workers.resources import resize_events
from actors.pod_workers.resources.resize_conditions import Pending, Progress, resize_conditions
from actors.pod_workers.shared.assigned import grant_of, pod_cgroup_settings
from actors.pod_workers.shared.worker_context import WorkerContext
from proto.v1 import Container, Pod, PodCondition, ResourceRequirements
from proto.wire.errors import AskTimeout, Refused

log = logging.getLogger(__name__)

WRITE_S = 30.0
NOT_BELOW_USAGE = "cannot decrease memory limits: "


class ResizeFailedError(Exception):
    """The resize cannot be done now; the message is the kubelet's for the condition."""


@dataclass
class _Cgroup:
    """A pod's cgroup during one resize."""

    sandbox_id: str
    """Of the sandbox whose runtime is told the limits."""
    before: Limits | None
    """Limits before the resize; None if the runtime owns the cgroup."""
    limits: PodLimits
    """Limits now."""
    wanted: PodLimits
    """Limits after the resize: without CFS quota if a container has exclusive CPUs, as at the pod's creation."""


@dataclass
class Resizer:
    """The resize side of one pod worker; used in its mailbox thread only."""

    context: WorkerContext
    reread: Callable[[str], Awaitable[object]]
    """Read a container again, by its CRI ID: its status shows what it has."""
    pending: Pending | None = None
    progress: Progress | None = None
    _limits_due: bool = False
    """A resize began and did not end: the pod's cgroup may have its former limits. The containers do not show it."""
    _granted: PodResourceInfo | None = None
    """The resources that were allocated last; None while they are the same as at the worker's start."""

    def conditions(self) -> tuple[PodCondition, ...]:
        """Conditions for the pod's status."""
        return resize_conditions(self.pending, self.progress)

    def granted(self, pod: Pod) -> None:
        """Other resources were allocated to the pod: drop the progress of an earlier resize."""
        self.progress, self._granted = Progress(pod.metadata.generation), resources_of(pod)

    def plan(self, pod: Pod, view: PodView) -> ResizePlan:
        """The updates that are left; sets or clears the progress, and records the event of a completed resize.

        Notes in the actuated state whether some are left: until none is, admission counts what the containers hold.
        """
        planned = resize.plan(pod, view, self.context.actuated.get(pod.metadata.uid))
        if self._limits_due:
            planned = dataclasses.replace(planned, pod=True)
        if planned and self.progress is None:
            self.progress = Progress(pod.metadata.generation)
        elif not planned and self.progress is not None and not self._is_before(pod):
            done, self.progress = self.progress, None
            message = resize_events.completed(pod, done.generation)
            self.context.events.pod(pod, "Normal", "ResizeCompleted", message)
        self.context.actuated.note_resize(pod.metadata.uid, None if planned else resources_of(pod))
        return planned

    def _is_before(self, pod: Pod) -> bool:
        """Return True for a pod from before the last grant, which came while its step was under way.

        The generation does not tell: that of a deferred resize is older than its grant.
        """
        return self._granted is not None and not equal(resources_of(pod), self._granted)

    async def carry_out(self, planned: ResizePlan, pod: Pod, sandbox_id: str) -> bool:
        """Do all of the plan but its restarts. False: it failed, and the condition says why. Raises RuntimeDown.

        `sandbox_id`: the present sandbox; empty when it was just created with these resources.
        """
        if not (planned.memory or planned.cpu or planned.pod):
            return True
        self._limits_due = True
        try:
            with metrics.resize():
                cgroup = await self._cgroup(pod, sandbox_id)
                await self._memory(planned, pod, cgroup)
                await self._cpu(planned, pod, cgroup)
        except RuntimeDown:
            raise
        except (ResizeFailedError, CriError, OSError, AskTimeout, Refused) as error:
            failed = Progress(pod.metadata.generation, str(error))
            if failed != self.progress:
                self.context.events.pod(pod, "Warning", "ResizeError", resize_events.failed(pod, failed.error))
            self.progress = failed
            return False
        self._limits_due = False
        if planned.pod:
            self.context.actuated.set_pod(pod.metadata.uid, pod.spec.resources)
        return True

    async def _cgroup(self, pod: Pod, sandbox_id: str) -> _Cgroup:
        wanted = pod_limits(pod, await pod_cgroup_settings(self.context, pod))
        name = pod_cgroup_parent(pod, self.context)
        found = read_limits(name, hierarchy.hierarchy()) if name else None
        return _Cgroup(sandbox_id, found, PodLimits() if found is None else resize.as_pod_limits(found), wanted)

    async def _memory(self, planned: ResizePlan, pod: Pod, cgroup: _Cgroup) -> None:
        if not planned.memory and not planned.pod:
            return
        steps = resize.memory_steps(cgroup.before, cgroup.wanted) if cgroup.before is not None else CgroupSteps()
        await self._refuse_below_usage(planned, pod, cgroup.wanted if steps.after else PodLimits())
        await self._step(steps, planned.memory, pod, "memory", planned, cgroup)

    async def _cpu(self, planned: ResizePlan, pod: Pod, cgroup: _Cgroup) -> None:
        if not planned.cpu and not planned.pod:
            return
        steps = resize.cpu_steps(cgroup.before, cgroup.wanted) if cgroup.before is not None else CgroupSteps()
        await self._step(steps, planned.cpu, pod, "cpu", planned, cgroup)

    async def _step(
        self,
        steps: CgroupSteps,
        updates: tuple[Update, ...],
        pod: Pod,
        resource: Resource,
        planned: ResizePlan,
        cgroup: _Cgroup,
    ) -> None:
        for limits in steps.before:
            await self._limit(pod, limits, resource, cgroup)
        for update in updates:
            await self._update(update, pod, resource, planned)
        for limits in steps.after:
            await self._limit(pod, limits, resource, cgroup)

    async def _limit(self, pod: Pod, limits: PodLimits, resource: Resource, cgroup: _Cgroup) -> None:
        name, driver = pod_cgroup_parent(pod, self.context), self.context.settings.cgroup_driver
        before, after = cgroup.limits, resize.merged(cgroup.limits, limits)
        tells = bool(cgroup.sandbox_id) and after != before
        if tells:
            await self._tell(pod, after, resource, cgroup.sandbox_id)
        try:
            await self.context.blocking(WRITE_S, ensure, name, limits, driver, hierarchy.hierarchy())
        except (OSError, AskTimeout):
            if tells:
                await self._take_back(pod, before, resource, cgroup.sandbox_id)
            raise
        cgroup.limits = after

    async def _tell(self, pod: Pod, limits: PodLimits, resource: Resource, sandbox_id: str) -> None:
        """Tell the runtime the limits that the pod's cgroup gets. Raises ResizeFailedError if it refuses them."""
        resources = linux_container_resources(resize.without_overhead(limits, pod))
        unified = hierarchy.hierarchy().unified
        overhead = linux_container_resources(overhead_resources(pod, self.context.settings, unified=unified))
        try:
            await self.context.cri.update_pod_sandbox_resources(sandbox_id, resources, overhead)
        except RuntimeDown:
            raise
        except Unimplemented:
            return
        except CriError as error:
            if error.code == "Unknown" and "not implemented" in error.details:  # containerd 2.2
                return
            raise ResizeFailedError(  # as the kubelet spells it
                f"failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: "
                f'updatePodSandboxResources failed for sanboxID "{sandbox_id}": {error.grpc_text()}'
            ) from error

    async def _take_back(self, pod: Pod, limits: PodLimits, resource: Resource, sandbox_id: str) -> None:
        """The cgroup has not got the limits that the runtime was told: tell it the ones before."""
        try:
            await self._tell(pod, limits, resource, sandbox_id)
        except (ResizeFailedError, CriError) as error:
            log.warning("cannot take back the limits that the runtime was told: %s", error)

    async def _update(self, update: Update, pod: Pod, resource: Resource, planned: ResizePlan) -> None:
        amounts = update.amounts(resource, memory_done=update in planned.memory)
        container = _with_amounts(update.container, amounts, pod)
        wanted = linux_resources(pod, container, self.context)
        grant = await grant_of(self.context, pod, container)
        lift_quota(wanted, grant, quota=self.context.settings.cpu_quota_with_exclusive_cpus)
        await self.context.cri.update_container_resources(update.found.id, wanted)
        done = update.container if resource == "cpu" or update not in planned.cpu else container
        self.context.actuated.set_container(pod.metadata.uid, done.name, _effective(pod, done))
        await self.reread(update.found.id)

    async def _refuse_below_usage(self, planned: ResizePlan, pod: Pod, shrunk: PodLimits) -> None:
        """Raise ResizeFailedError for a limit below usage, which the kernel would refuse or answer with a kill."""
        problems = []
        if shrunk.memory_bytes is not None:
            found = usage(pod_cgroup_parent(pod, self.context))
            if found is not None and found.memory_bytes >= shrunk.memory_bytes:
                problems.append(_below("pod", shrunk.memory_bytes, found.memory_bytes))
        names = {update.found.id: update.container.name for update in planned.memory}
        for identity, limit in resize.shrinking_limits(planned.memory).items():
            stats = await self.context.cri.container_stats(identity)
            used = stats.memory.usage_bytes.value or stats.memory.working_set_bytes.value
            if used >= limit:
                problems.append(_below(f'container "{names[identity]}"', limit, used))
        if problems:
            listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise ResizeFailedError(NOT_BELOW_USAGE + listed)


def note_actuated(context: WorkerContext, pod: Pod, container: Container) -> None:
    """Record the resources of a container that is about to be created, and save them if they differ.

    After a kill, a container that was created with new resources must not be restarted for them again.
    """
    uid = pod.metadata.uid
    known = context.actuated.get(uid)
    before = known.containers.get(container.name) if known is not None else None
    resources = _effective(pod, container)
    context.actuated.set_container(uid, container.name, resources)
    if before is not None and before != resources:
        context.actuated.save()


def _effective(pod: Pod, container: Container) -> ResourceRequirements:
    """The container's resources with the limits that it gets from its pod, for its record as in the kubelet."""
    resources = container.resources
    return replace(resources, limits=with_pod_limits(resources.limits, pod.spec.resources))


def _below(what: str, limit: int, used: int) -> str:
    return f"attempting to set {what} memory limit ({limit}) below current usage ({used})"


def _with_amounts(container: Container, amounts: Amounts, pod: Pod) -> Container:
    """The container with these amounts of CPU and memory. Its other resources stay.

    A limit that it gets from its pod anyway stays out of its own. Memory QoS and swap depend on its own limits, and are
    the same as at its creation.
    """
    resources = container.resources
    own, effective = Amounts.of(resources), Amounts.of(resources, pod.spec.resources)
    limits = _amended(
        resources.limits,
        amounts.cpu_limit if own.cpu_limit or amounts.cpu_limit != effective.cpu_limit else 0,
        amounts.memory_limit if own.memory_limit or amounts.memory_limit != effective.memory_limit else 0,
    )
    requests = _amended(resources.requests, amounts.cpu_request, amounts.memory_request)
    return replace(container, resources=replace(resources, limits=limits, requests=requests))


def _amended(resources: dict[str, int | float | str], milli_cpu: int, memory: int) -> dict[str, int | float | str]:
    kept = {name: amount for name, amount in resources.items() if name not in ("cpu", "memory")}
    if milli_cpu:
        kept["cpu"] = f"{milli_cpu}m"
    if memory:
        kept["memory"] = str(memory)
    return kept
