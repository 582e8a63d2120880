"""One sync step: brings a wanted pod as far as it goes now, by the actions of `policy.compute_actions`.

Source: the kubelet's syncPod and the runtime manager's SyncPod. The worker runs one step at a time and may cancel it.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter

from actors._base import gather
from actors._base.messaging import tracing
from actors._cgroup import oom_groups
from actors._cgroup.placement import must_move
from actors._events.recorder import EventType
from actors._metrics import kubelet as metrics
from actors.pod_workers import policy
from actors.pod_workers.cri_config.sandbox_config import pod_cgroup_parent
from actors.pod_workers.decide.termination import RESTARTED, Kill, find_container, grace_of_kill_s, grace_period_s
from actors.pod_workers.model import metrics as pod_metrics
from actors.pod_workers.model import reasons
from actors.pod_workers.model.end_record import kill_cause
from actors.pod_workers.model.restart_policy import is_sidecar, restart_sources
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import ContainerView, PodView
from actors.pod_workers.resources.resize_steps import Resizer
from actors.pod_workers.shared.assigned import prepare_claims
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.shared.worker_context import WorkerContext
from actors.pod_workers.status.reporting import StatusReporter
from actors.pod_workers.steps.container_start import StartFailedError
from actors.pod_workers.steps.killing import Killing
from actors.pod_workers.steps.operations import CGROUP_S, Operations
from actors.pod_workers.steps.runtime_view import RuntimeView
from proto.common import logs
from proto.common.backoff import Backoff
from proto.pods.volume import LIMIT_EXCEEDED
from proto.v1 import Container, Pod
from proto.waits.remedies import is_timeout
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

RETRY_S = 10.0
"""After a failure caused by the pod (the kubelet's backOffPeriod), plus a random part of up to one half."""
RETRY = Backoff(0.5, cap_s=RETRY_S)
"""After failures of the runtime or of a new sandbox. Often the runtime is only busy, or
an abandoned call still holds the sandbox's name."""
RETRY_NETWORK_S = 1.0
"""While the runtime's network is not ready (the kubelet's backOffOnTransientErrorPeriod)."""
_PROBES = {"LivenessProbe": "liveness", "StartupProbe": "startup"}
"""The probe by the reason of a kill."""
VOLUME_DEADLINE_S = 120.0
"""Deadline of one wait for volumes (the kubelet's podAttachAndMountTimeout is 2 min 3 s)."""


class NetworkNotReadyError(Exception):
    """The pod is held back until the runtime's network is ready; the message is the kubelet's."""


class ClaimsNotPreparedError(Exception):
    """The pod is held back until DRA drivers have prepared its claims; the message says what is missing."""


class Sync:
    """The sync stage of one pod worker; used in its mailbox thread only."""

    def __init__(
        self,
        scope: PodScope,
        runtime: RuntimeView,
        killing: Killing,
        operations: Operations,
        report: StatusReporter,
        resizer: Resizer,
    ) -> None:
        self.scope = scope
        self.context = scope.context
        self.runtime = runtime
        self.killing = killing
        self.operations = operations
        self.report = report
        self.resizer = resizer
        self._not_created: Counter[str] = Counter()
        """Container name, empty for the sandbox, to the failures in a row to create it."""
        self.waits_for_claims = False
        """The last step ended because the pod's claims were not prepared."""
        self._in_new_sandbox = self._something_failed = False
        """Of this step."""
        self._placed = False
        """No container runs outside the pod's cgroup. From then on none can: the settings that name it stay."""

    async def step(self) -> float | TerminationRequest:
        """Seconds until the next step if nothing happens, or the request that ends a finished or overdue pod."""
        self._in_new_sandbox = self._something_failed = False
        try:
            return await self._step()
        except Exception:
            self._something_failed = True
            raise
        finally:
            if self._in_new_sandbox and self._something_failed:
                pod_metrics.pod_start_failed(self.scope.pod)

    async def _step(self) -> float | TerminationRequest:
        if self._not_created:
            self.runtime.relist()  # now, not right after the failure: an abandoned call may have finished by now
        pod, view = self.scope.pod, await self.runtime.determined()
        planned = self.resizer.plan(pod, view)
        self.report.publish(view, begins_sync=True)
        termination = self.report.own_termination(time.time())
        if termination is not None:
            return termination
        self.context.ends.is_to_run(pod.metadata.uid)
        resetting = self.report.restarting_all
        misplaced = await self._is_misplaced(view)
        actions = policy.compute_actions(pod, view, self.report.probe_result, resetting=resetting, misplaced=misplaced)
        if actions or planned:
            await self._need_network()
        refused = await self._mount_volumes()
        if refused is not None:
            self.report.publish(view)
            return refused
        planned = planned.without(kill.container.id for kill in actions.kill)
        if actions.reset:
            return await self._reset(actions.reset, restart_sources(pod, view))
        if actions.create_sandbox and actions.attempt > 0:
            self._event("Normal", "SandboxChanged", reasons.SANDBOX_CHANGED)
        if not actions.kill_pod:
            actions = policy.with_restarts(actions, planned, pod)
        ends = view.containers if actions.kill_pod else tuple(kill.container for kill in actions.kill)
        self.context.ends.keep_containers(pod.metadata.uid, {one.id for one in ends})
        self.operations.note_kills(view, ends)
        if misplaced:
            log.warning("%s: ends, and starts again in its cgroup: it runs in that of other settings", log_name(pod))
        if actions.kill_pod:
            await self.killing.end_pod(time.monotonic() + grace_period_s(self.scope.pod))
            if not actions.create_sandbox:
                self.report.publish(await self.runtime.current())
                return self.report.own_termination(time.time()) or RETRY_S
        await gather(*[self.scope.spawn(self._kill(kill), "kill") for kill in actions.kill])
        if actions.create_sandbox:
            pod_metrics.pod_starting(pod)
            await self._prepare_claims()
            self._in_new_sandbox = True
        to_start = *actions.ephemeral, *actions.init, *actions.start
        if actions.create_sandbox and not await self._create_sandbox(actions.attempt, to_start):
            return RETRY.delay_s(self._not_created[""])
        resized = actions.kill_pod or await self.resizer.carry_out(planned, pod, actions.sandbox_id)
        wait_s = await self._start_all(to_start)
        view = await self.runtime.current()
        self._group_oom_kills(view)
        self.resizer.plan(pod, view)
        self.report.publish(view)
        return min(wait_s, resync_s(self.context) if resized else RETRY_S)

    async def _is_misplaced(self, view: PodView) -> bool:
        """True while a container runs outside the pod's cgroup, which has another name since this start of the agent.

        As in the kubelet, a pod without a running main container goes on as it is. Unlike there, so does each pod while
        no cgroup can be made for it.
        """
        pod, main = self.scope.pod, {one.name for one in self.scope.pod.spec.containers}
        pids = {one.id: one.pid for one in view.containers if one.state == "running" and one.name in main}
        if self._placed or not pids or not pod_cgroup_parent(pod, self.context):
            self._placed = True
            return False
        try:
            found = await self.context.blocking(CGROUP_S, must_move, pod, self.context.settings, pids)
        except ActorError:
            return False  # the next step looks again
        except OSError as error:
            text = f"unable to ensure pod container exists: {error}; the pod goes on in the cgroup of other settings"
            self._event("Warning", "FailedCreatePodContainer", text)
            return False
        self._placed = not found
        return bool(found)

    def _group_oom_kills(self, view: PodView) -> None:
        running = {one.id for one in view.containers if one.state == "running"}
        if lost := oom_groups.restore(self.scope.pod, running, self.context.settings):
            log.info("%s: memory.oom.group is 1 again, which systemd had reset: %s", log_name(self.scope.pod), lost)

    async def _kill(self, kill: Kill) -> None:
        log.info("%s: %s", log_name(self.scope.pod), kill.message)
        found, uid, kind = kill.container, self.scope.pod.metadata.uid, _PROBES.get(kill.reason)
        said = self.report.probe_message(found.id, kind) if kind else ""
        cause = kill_cause(said or kill.message.removesuffix(RESTARTED))
        self.context.ends.killed(uid, found.name, found.id, cause)  # an event of it may be dropped
        if is_timeout(said):
            self.scope.spawn(self._note_throttling(found), "throttling")
        grace_s = grace_of_kill_s(self.scope.pod, find_container(self.scope.pod, found.name), kill.reason)
        await self.killing.end_container(found, time.monotonic() + grace_s, kill.message)

    async def _note_throttling(self, found: ContainerView) -> None:
        """Add to the cause of a kill that the container's CPU limit held it back. The kill does not wait for that."""
        uid = self.scope.pod.metadata.uid
        if note := await self.context.throttling(uid, found.id):
            self.context.ends.add_to_cause(uid, found.name, found.id, note)

    async def _reset(self, instances: tuple[ContainerView, ...], sources: tuple[ContainerView, ...]) -> float:
        """Restart all containers. The others are removed at once, the one whose exit matched after its back-off.

        No source is left if another client of the runtime has removed it: then all are removed at once.
        """
        if not sources:
            await self.operations.reset(instances)
            self.report.publish(self.runtime.view)
            return 0.0
        source = sources[-1]
        log.info(
            "%s: container %s exited with %d: restarting all", log_name(self.scope.pod), source.name, source.exit_code
        )
        others = tuple(one for one in instances if one.name != source.name)
        if others:
            await self.operations.reset(others)
            self.report.publish(self.runtime.view)
        held_s = self.operations.held_back_s(source.name, time.time())
        if held_s > 0:
            self._hold_back(source.name, held_s)
            self.report.publish(self.runtime.view)
            return held_s
        await self.operations.raise_back_off(source)
        await self.operations.reset(tuple(one for one in instances if one.name == source.name))
        self.report.publish(self.runtime.view)
        return 0.0

    async def _need_network(self) -> None:
        """Raise NetworkNotReadyError if the runtime has no network for the pod: nothing of it starts or restarts.

        Only for a pod with work. The kubelet holds back others, too, which then have the event. Asking for each of them
        would wake pleg and the runtime at every look.
        """
        with self.scope.wait_reasons.waiting_for("the state of the runtime's network"):
            problem = "" if self.scope.pod.spec.host_network else await self.context.network.problem()
        if problem:
            self._event("Warning", "NetworkNotReady", problem)
            raise NetworkNotReadyError(problem)

    async def _mount_volumes(self) -> float | TerminationRequest | None:
        """None if all volumes are mounted; else seconds until the next try, or the request that ends the pod."""
        try:
            await self.operations.mount_volumes(VOLUME_DEADLINE_S)
        except Refused as refusal:
            log.warning("%s: %s: %s", log_name(self.scope.pod), refusal.reason, refusal.message)
            if refusal.reason == LIMIT_EXCEEDED:
                metrics.ADMISSION_REJECTIONS.inc(refusal.reason)
                self._event("Warning", refusal.reason, refusal.message)
                return TerminationRequest(reason=refusal.reason, message=f"{reasons.REJECTED}{refusal.message}")
            self.report.volumes_refused(refusal.message)
            self._held_back("volumes", refusal.reason, refusal.message, RETRY_S)
            return RETRY_S
        self.report.volumes_refused("")
        return None

    async def _prepare_claims(self) -> None:
        """Raise ClaimsNotPreparedError unless DRA drivers have prepared the pod's claims."""
        try:
            with self.scope.wait_reasons.waiting_for("DRA drivers to prepare the claims"):
                await prepare_claims(self.context, self.scope.pod)
        except Refused as refusal:
            self.waits_for_claims = True
            self._event("Warning", refusal.reason, f"Failed to prepare dynamic resources: {refusal.message}")
            raise ClaimsNotPreparedError(refusal.message) from refusal
        self.waits_for_claims = False

    async def _volumes_answer(self, container: Container) -> bool:
        try:
            await self.operations.check_volumes(container, VOLUME_DEADLINE_S)
        except Refused as refusal:
            log.warning("%s: %s: %s", log_name(self.scope.pod), refusal.reason, refusal.message)
            self.report.volumes_refused(refusal.message)
            self.report.waiting(container.name, reasons.CREATE_CONTAINER_CONFIG_ERROR, refusal.message)
            self._held_back(f"container {container.name}", refusal.reason, refusal.message, RETRY_S)
            return False
        return True

    async def _create_sandbox(self, attempt: int, containers: tuple[Container, ...]) -> bool:
        try:
            with tracing.span("createSandbox"), self.scope.trace.part("sandbox"):
                await self.operations.create_sandbox(attempt, containers)
        except StartFailedError as failure:
            log.warning("%s: %s: %s", log_name(self.scope.pod), failure.reason, failure.message)
            self._not_created[""] += 1
            self._held_back("sandbox", failure.reason, failure.message, RETRY.delay_s(self._not_created[""]))
            return False
        self._not_created.pop("", None)
        # Publish the address at once: probes and other pods use it.
        self.report.publish(await self.runtime.current())
        return True

    async def _start_all(self, containers: tuple[Container, ...]) -> float:
        """Start the containers in order; a postStart hook delays the next.

        Returns the seconds until one needs the next step; infinite when none does.
        """
        wait_s = math.inf
        for container in containers:
            wait_s = min(wait_s, await self._start(container))
        return wait_s

    async def _start(self, container: Container) -> float:
        now = time.time()
        held_s = self.operations.held_back_s(container.name, now)
        if held_s > 0:
            self._hold_back(container.name, held_s)
            return held_s
        if not await self._volumes_answer(container):
            return RETRY_S
        try:
            with tracing.span("startContainer", attributes={"k8s.container.name": container.name}):
                restarts = self.report.published_restarts(container.name)
                found = await self.operations.start_container(container, restarts)
        except StartFailedError as failure:
            log.warning(
                "%s: container %s: %s: %s", log_name(self.scope.pod), container.name, failure.reason, failure.message
            )
            self.report.waiting(container.name, failure.reason, failure.message)
            wait_s = _retry_s()
            if failure.reason == reasons.CREATE_CONTAINER_ERROR:
                self._not_created[container.name] += 1
                wait_s = RETRY.delay_s(self._not_created[container.name])
            self._held_back(f"container {container.name}", failure.reason, failure.message, wait_s)
            return wait_s
        self._not_created.pop(container.name, None)
        self.report.started(container.name)
        # After a sidecar the next container starts. A container that exited before it was read was never watched, so no
        # hint will report its exit.
        return 0.0 if found.state == "exited" or is_sidecar(container) else math.inf

    def _held_back(self, part: str, reason: str, message: str, wait_s: float, loop_s: float = 0.0) -> None:
        self._something_failed = True
        self.scope.wait_reasons.held_back(part, reason, message, wait_s, loop_s)

    def _hold_back(self, container: str, held_s: float) -> None:
        self.operations.forget_kill(container)
        reason, message = self.operations.back_off_reason(container)
        self.report.waiting(container, reason, message)
        text, loop_s = f"{self.operations.last_end(container)}{message}", self.operations.loop_s(container)
        self._held_back(f"container {container}", reason, text, held_s, loop_s)
        self._event("Warning", "BackOff", reasons.back_off_event(self.scope.pod, container), container)

    def _event(self, kind: EventType, reason: str, message: str, container: str = "") -> None:
        self.context.events.pod(self.scope.pod, kind, reason, message, container)


def resync_s(context: WorkerContext) -> float:
    """Seconds until the next step of a pod without events: from one to one and a half periods (`policy.resync_s`)."""
    return policy.resync_s(time.monotonic(), context.settings.sync_frequency_s, random.random())


def log_name(pod: Pod) -> str:
    """`pod NAMESPACE/NAME`, the pod's name in logs."""
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def log_keys(pod: Pod) -> dict[str, object]:
    """The `extra` of the pod's log entries: its namespace and name."""
    return {logs.POD: (pod.metadata.namespace, pod.metadata.name)}


def _retry_s() -> float:
    return RETRY_S * (1 + random.random() / 2)
