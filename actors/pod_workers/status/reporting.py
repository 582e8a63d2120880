"""Publishes a worker's pod: its status to the status actor, its probes to the probe actor.

Keeps the inputs of the status that nothing else keeps: probe results, waiting reasons and termination messages.
`pod_status` computes the status.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from collections.abc import Callable

import msgspec

from actors._events.recorder import field_path
from actors.pod_workers.environment.probe_commands import Probes, expanded_probes
from actors.pod_workers.model import metrics, reasons
from actors.pod_workers.model.allocation import NOTHING, containers_of
from actors.pod_workers.model.termination_request import TERMINAL_PHASES, TerminationRequest
from actors.pod_workers.model.view import ContainerView, PodView
from actors.pod_workers.shared.pod_scope import PodScope
from actors.pod_workers.status import pod_status
from actors.pod_workers.status.ended_status import ended_status
from actors.pod_workers.status.inheritance import inherited_results, newest
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.termination_message import may_be_of_log, read_termination_message
from proto.common import rfc3339
from proto.pods.pod_workers import ProbeResult
from proto.pods.probe import ProbedContainer, ProbedPod
from proto.pods.status import PodStarted, Stage
from proto.v1 import Container, ContainerStatus, Pod, PodCondition, PodStatus

log = logging.getLogger(__name__)

SHOWN = 10
"""Most names in a log line."""


class StatusReporter:
    """The report side of one pod worker; used in its mailbox thread only."""

    def __init__(
        self,
        scope: PodScope,
        view: PodView | None,
        old: PodStatus | None,
        results: tuple[ProbeResult, ...],
        resize_conditions: Callable[[], tuple[PodCondition, ...]] = tuple,
        *,
        inherits: bool = True,
    ) -> None:
        """`view`: the runtime's, None when not known. `old`: the last published status. `results`: of probes so far.

        `inherits`: containers that an earlier start of the agent saw started and ready are so until they are probed.
        """
        self.scope = scope
        self.context = scope.context
        self._resize_conditions = resize_conditions
        pod = scope.pod
        self.terminating = False
        self.over = False
        """No process of the pod runs any more."""
        self.released = False
        """Its volumes are unmounted and its cgroup is removed."""
        self.start_time = _start_time(view, old or pod.status)
        self.last: PodStatus | None = old
        self._restarts: dict[str, int] = {}
        self._note_published(old)
        self._sent: tuple[PodStatus, Stage] | None = None
        self._waiting = _waiting_reasons(old)
        # Probe results of this start of the agent, from before a restart of this process, override inherited ones.
        known = view if inherits else None
        self._inherited = inherited_results(newest(old, pod.status), known) if known is not None else {}
        self._results: dict[tuple[str, str], ProbeResult] = {
            (identity, kind): ProbeResult(
                pod_uid=pod.metadata.uid, container="", container_id=identity, probe=kind, result="success"
            )
            for identity, kinds in self._inherited.items()
            for kind in kinds
        }
        self._addressed: frozenset[tuple[str, str]] | None = None
        """The sandboxes and containers, with their states, for which the Node's addresses were taken last."""
        self._messages: dict[str, str] = {}
        self._volumes = ""
        self._probed = _is_probed(pod)
        self._expanded: tuple[Pod | None, dict[str, Probes]] = (None, {})
        self._published: tuple[PodView, dict[str, tuple[str, str]]] | None = None
        """The last view with the waiting reasons of that time."""
        self.take_results(results)

    def pod_changed(self) -> None:
        """The object changed: the next publication carries all of it."""
        self._sent = None
        self._probed = _is_probed(self.scope.pod)

    # Inputs

    def take_results(self, results: tuple[ProbeResult, ...]) -> bool:
        """Keep probe results. True: one is new."""
        new = any(self.probe_result(one.container_id, one.probe) != one.result for one in results)
        self._results.update({(one.container_id, one.probe): one for one in results})
        return new

    def results(self) -> tuple[ProbeResult, ...]:
        """All results so far, for another reporter of this pod."""
        return tuple(self._results.values())

    def probe_result(self, container_id: str, probe: str) -> str | None:
        """The last result; None without one."""
        found = self._results.get((container_id, probe))
        return found.result if found is not None else None

    def probe_message(self, container_id: str, probe: str) -> str:
        """The message of the probe's last result; empty without one."""
        found = self._results.get((container_id, probe))
        return found.message if found is not None else ""

    def waiting(self, container: str, reason: str, message: str) -> None:
        """Why a container does not start."""
        self._waiting[container] = (reason, message)

    def volumes_refused(self, message: str) -> None:
        """Why the pod's volumes are not mounted; empty when they are."""
        self._volumes = message

    def started(self, container: str) -> None:
        """Drop the waiting reason of a container that has started."""
        self._waiting.pop(container, None)

    def published_restarts(self, container: str) -> int | None:
        """RestartCount of the container's last published instance; None if there was none.

        An instance that was created and not started does not count.
        """
        return self._restarts.get(container)

    @property
    def restarting_all(self) -> bool:
        """True while a rule restarts all containers, as last published."""
        return self.last is not None and pod_status.is_restarting_all(self.last)

    def own_termination(self, now: float) -> TerminationRequest | None:
        """The termination of a pod that has finished or is past its activeDeadlineSeconds; else None."""
        deadline_s = self.scope.pod.spec.active_deadline_seconds
        if deadline_s is not None and now - self.start_time >= deadline_s:
            return TerminationRequest(reason=reasons.DEADLINE_EXCEEDED, message=reasons.DEADLINE_EXCEEDED_MESSAGE)
        if self.last is not None and self.last.phase in TERMINAL_PHASES:
            return TerminationRequest()
        return None

    def deadline_in_s(self, now: float) -> float | None:
        """Seconds until activeDeadlineSeconds is over; None without one."""
        deadline_s = self.scope.pod.spec.active_deadline_seconds
        return None if deadline_s is None else max(0.0, self.start_time + deadline_s - now)

    # Publications

    def publish(
        self, view: PodView, termination: TerminationRequest | None = None, *, begins_sync: bool = False
    ) -> None:
        """Send status and probe the changes. No readiness is published before probe has sent its results.

        `begins_sync`: the pod is synced now. As in the kubelet, probe looks then at containers that are not ready.
        """
        self._published = view, dict(self._waiting)
        self._forget_old_results(view)
        self._publish(*self._published, termination, begins_sync=begins_sync)

    def publish_again(self, termination: TerminationRequest | None = None) -> None:
        """Publish the last view with the probe results since: the kubelet's SetContainerReadiness.

        The view of a step under way is not published: the step may not have decided on what it has seen.
        """
        if self._published is not None:
            self._publish(*self._published, termination, begins_sync=False)

    def _publish(
        self,
        view: PodView,
        waiting: dict[str, tuple[str, str]],
        termination: TerminationRequest | None,
        *,
        begins_sync: bool,
    ) -> None:
        states = {one.id: one.state for one in view.sandboxes} | {one.id: one.state for one in view.containers}
        parts = frozenset(states.items())
        inputs = StatusInputs(
            probe_result=self.probe_result,
            waiting=waiting,
            volumes=self._volumes,
            old=self.last,
            now=rfc3339.seconds(self.start_time),
            host_ips=self.context.host_ips,
            host_ips_told=self.context.host_ips_told,
            keeps_ips=parts == self._addressed,
            node_ip=self.context.settings.node_ip,
            terminal=termination is not None and not termination.deleted,
            over=self.over,
            reason=termination.reason if termination is not None else "",
            message=termination.message if termination is not None else "",
            runtime_name=self.context.runtime_name,
            termination_message=self._termination_message,
            image_digests=self.context.settings.image_volume_digests,
            health=self.context.health.of_pod(self.scope.pod.metadata.uid),
            resize=self._resize_conditions(),
            actuated=self.context.actuated.get(self.scope.pod.metadata.uid) or NOTHING,
        )
        status = pod_status.compute_status(self.scope.pod, view, inputs)
        if pod_status.takes_host_ips(view, inputs):
            self._addressed = parts
        if self.over:
            status = ended_status(self.scope.pod, status)
        before, self.last = self.last, status
        if metrics.phase_published(self.scope.pod, before.phase if before is not None else None, status.phase):
            left_out_s = self.scope.pulling_s + metrics.init_seconds(self.scope.pod, view)
            self.context.published.status_ref.tell(
                PodStarted(pod_uid=self.scope.pod.metadata.uid, left_out_s=left_out_s)
            )
        self._note_lives(view)
        if self._probed:
            probed = self._probed_pod(view, status)
            self.context.published.probing(probed, again=begins_sync and any(map(self._waits, probed.containers)))
        self.scope.trace.published(status)
        publication = (status, self._stage())
        if publication == self._sent or (self._probed and not self.context.probes_known):
            return
        self.context.published.status(self.scope.desired, *publication, spec_changed=self._sent is None)
        self._sent = publication

    def _stage(self) -> Stage:
        if self.released:
            return "released"
        if self.over:
            return "terminated"
        return "terminating" if self.terminating else "sync"

    def _note_lives(self, view: PodView) -> None:
        """Every started instance is published now, and counts even if the runtime loses it."""
        for one in view.containers:
            if one.state != "created":
                self._restarts[one.name] = max(one.restart_count, self._restarts.get(one.name, 0))

    def _note_published(self, status: PodStatus | None) -> None:
        """Restart counts that were published before this process started."""
        for one in (*status.init_container_statuses, *status.container_statuses) if status is not None else ():
            lived = _restarts_of_last_life(one)
            if lived is not None:
                self._restarts[one.name] = lived

    def _termination_message(self, container: ContainerView) -> str:
        """Read once. The runtime may write a log's last lines after the exit: words from there are read each time."""
        known = self._messages.get(container.id)
        if known is None or may_be_of_log(container):
            found = read_termination_message(container)
            if known is None or found != container.message:  # else the log is gone
                self._messages[container.id] = known = found
        return known

    def _forget_old_results(self, view: PodView) -> None:
        known = {container.id for container in view.containers}
        for key in [key for key in self._results if key[0] not in known and self.context.probes_known]:
            del self._results[key]
        for identity in [identity for identity in self._messages if identity not in known]:
            del self._messages[identity]

    def _probed_pod(self, view: PodView, status: PodStatus) -> ProbedPod:
        meta = self.scope.pod.metadata
        # A pod on the host's network keeps its published address, which the machine reaches; the Node's may change.
        ip = status.pod_ip or (status.host_ip if self.scope.pod.spec.host_network else "")
        return ProbedPod(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            pod_ip=ip or "",
            terminating=self.terminating,
            containers=()
            if status.phase in TERMINAL_PHASES
            else tuple(self._probed_container(one, view) for one in containers_of(self.scope.pod) if _has_probe(one)),
        )

    def _probes(self) -> dict[str, Probes]:
        """The probes by container, made once for each object of the pod."""
        pod, found = self._expanded
        if pod is not self.scope.pod:
            pod = self.scope.pod
            found, refused = expanded_probes(containers_of(pod))
            if refused:
                name, shown = f"{pod.metadata.namespace}/{pod.metadata.name}", ", ".join(refused[:SHOWN])
                log.warning("pod %s: the probes of %s fail: Linux refuses commands of that length", name, shown)
            self._expanded = pod, found
        return found

    def _waits(self, container: ProbedContainer) -> bool:
        """True for a container that has started and is not ready."""
        results = {kind: self.probe_result(container.container_id, kind) for kind in ("startup", "readiness")}
        started = container.running and (container.startup is None or results["startup"] == "success")
        return started and container.readiness is not None and results["readiness"] != "success"

    def _probed_container(self, container: Container, view: PodView) -> ProbedContainer:
        probed = _probed(self.scope.pod, container, view, self._probes()[container.name])
        return msgspec.structs.replace(probed, inherited=self._inherited.get(probed.container_id, ()))


def _is_probed(pod: Pod) -> bool:
    return any(_has_probe(container) for container in containers_of(pod))


def _restarts_of_last_life(status: ContainerStatus) -> int | None:
    """RestartCount of the newest started instance, as published; None if none started."""
    if status.state.running is not None or status.state.terminated is not None:
        return status.restart_count
    ended = status.last_state.terminated
    if ended is None:
        return None
    counted_ahead = ended.reason in (reasons.RESTARTING_ALL_CONTAINERS, reasons.CONTAINER_STATUS_UNKNOWN)
    if not counted_ahead and status.container_id in (None, "", ended.container_id):
        return status.restart_count
    return max(0, status.restart_count - 1)


def _has_probe(container: Container) -> bool:
    return any((container.liveness_probe, container.readiness_probe, container.startup_probe))


def _probed(pod: Pod, container: Container, view: PodView, probes: Probes) -> ProbedContainer:
    found = view.container(container.name)
    return ProbedContainer(
        name=container.name,
        container_id=found.id if found is not None else "",
        running=found is not None and found.state == "running",
        started_at=found.started_at_ns / 1e9 if found is not None else 0.0,
        field_path=field_path(pod, container.name) or "",
        ports=container.ports,
        liveness=probes["liveness_probe"],
        readiness=probes["readiness_probe"],
        startup=probes["startup_probe"],
    )


def _start_time(view: PodView | None, old: PodStatus) -> float:
    """Unix seconds of the pod's start: as published, else of the runtime's oldest sandbox, else now.

    The published time comes first, so that activeDeadlineSeconds goes on over a restart of this actor. A pod that waits
    for volumes has no sandbox, and an old pod may have lost its first one.
    """
    if old.start_time:
        with contextlib.suppress(ValueError):
            return datetime.datetime.fromisoformat(old.start_time).timestamp()
    sandboxes = view.sandboxes if view is not None else ()
    created = [sandbox.created_at_ns for sandbox in sandboxes if sandbox.created_at_ns]
    return min(created) / 1e9 if created else time.time()


def _waiting_reasons(old: PodStatus | None) -> dict[str, tuple[str, str]]:
    """Waiting reasons that were published before this process started, so that a restart keeps them."""
    if old is None:
        return {}
    statuses = (*old.init_container_statuses, *old.container_statuses)
    found = ((one.name, one.state.waiting) for one in statuses if one.state is not None)
    return {
        name: (waiting.reason, waiting.message or "")
        for name, waiting in found
        if waiting is not None and waiting.reason and waiting.reason not in _NO_REASON
    }


_NO_REASON = {reasons.CONTAINER_CREATING, reasons.POD_INITIALIZING}
"""Default waiting reasons, which are computed for each status."""
