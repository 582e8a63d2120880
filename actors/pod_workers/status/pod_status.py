"""Computes a pod's status from its spec, the runtime's view and probe results. Pure.

Source: the kubelet's generateAPIPodStatus (pkg/kubelet/kubelet_pods.go). Container statuses, conditions, phase and
resources have their own modules. The status actor sets transition times.
"""

from __future__ import annotations

from dataclasses import replace

from actors._cgroup.quantities.qos import qos_class
from actors._host.node.addresses import LOOPBACK
from actors._host.node.critical import is_static
from actors.pod_workers.model import reasons, restart_policy
from actors.pod_workers.model.allocation import NOTHING, with_resources
from actors.pod_workers.model.termination_request import TERMINAL_PHASES
from actors.pod_workers.model.view import PodView, sorted_ips
from actors.pod_workers.resources.pod_resources import pod_limits, pod_requests
from actors.pod_workers.resources.resize_conditions import IN_PROGRESS, PENDING
from actors.pod_workers.status.conditions import OWNED, RESTARTING, Statuses, conditions
from actors.pod_workers.status.container_status import ephemeral_statuses, init_statuses, main_statuses
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.phase import compute_phase
from proto.v1 import HostIP, Pod, PodCondition, PodIP, PodStatus, ResourceRequirements

DISRUPTION_TARGET = "DisruptionTarget"


def compute_status(pod: Pod, view: PodView, inputs: StatusInputs) -> PodStatus:
    """The status to publish. Condition times are unset."""
    old = inputs.old if inputs.old is not None else pod.status
    if inputs.message.startswith(reasons.REJECTED):
        return _rejected_status(pod, old, inputs)
    inputs = replace(inputs, restarting_all=_restarting_all(pod, view, old))
    main, init = main_statuses(pod, view, inputs), init_statuses(pod, view, inputs)
    statuses = {status.name: status for status in (*init, *main)}
    phase, reason, message = _phase(pod, view, statuses, old, inputs)
    host_ips = _host_ips(old, inputs)
    pod_ips = _pod_ips(pod, view, old, host_ips, inputs)
    return PodStatus(
        observed_generation=pod.metadata.generation,
        phase=phase,
        conditions=conditions(
            pod,
            view,
            statuses,
            phase,
            _other_conditions(pod, old, inputs),
            initialized=_holds(old, "Initialized"),
            restarting_all=inputs.restarting_all,
            volumes=inputs.volumes,
        ),
        reason=reason,
        message=message,
        host_ip=host_ips[0] if host_ips else None,
        host_ips=tuple(HostIP(ip=ip) for ip in host_ips),
        pod_ip=pod_ips[0] if pod_ips else None,
        pod_ips=tuple(PodIP(ip=ip) for ip in pod_ips),
        start_time=old.start_time or inputs.now or None,
        init_container_statuses=init,
        container_statuses=main,
        ephemeral_container_statuses=ephemeral_statuses(pod, view, inputs),
        qos_class=qos_class(pod),
        allocated_resources=pod_requests(pod),
        resources=_resources(pod, phase, inputs),
    )


def _resources(pod: Pod, phase: str, inputs: StatusInputs) -> ResourceRequirements:
    """The actuated resources of a running pod, which a resize may be ahead of; else the allocated ones."""
    known = phase == "Running" and inputs.actuated is not NOTHING
    shown = with_resources(pod, inputs.actuated) if known else pod
    return ResourceRequirements(limits=pod_limits(shown), requests=pod_requests(shown))


def _restarting_all(pod: Pod, view: PodView, old: PodStatus) -> bool:
    """True from a rule's match on; after the matching exit is removed, by the last published condition."""
    return is_restarting_all(old) or bool(restart_policy.restart_sources(pod, view))


def is_restarting_all(status: PodStatus) -> bool:
    """Return True when the status has the condition AllContainersRestarting."""
    return _holds(status, RESTARTING)


def _holds(status: PodStatus, kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in status.conditions)


def _rejected_status(pod: Pod, old: PodStatus, inputs: StatusInputs) -> PodStatus:
    """As in the kubelet, without conditions and containers."""
    return PodStatus(
        observed_generation=pod.metadata.generation,
        phase="Failed",
        reason=inputs.reason,
        message=inputs.message or None,
        start_time=old.start_time or inputs.now or None,
        qos_class=qos_class(pod),
    )


def _phase(
    pod: Pod, view: PodView, statuses: Statuses, old: PodStatus, inputs: StatusInputs
) -> tuple[str, str | None, str | None]:
    """(phase, reason, message). A terminal phase never changes, nor does its reason."""
    if old.phase in TERMINAL_PHASES:
        return old.phase, old.reason, old.message
    if pod.status.phase in TERMINAL_PHASES:  # set by a controller at the API server
        return pod.status.phase, pod.status.reason, pod.status.message
    ended = "Failed", inputs.reason, inputs.message or None
    if inputs.reason == reasons.DEADLINE_EXCEEDED:
        return ended
    phase = compute_phase(pod, view, statuses, terminal=inputs.terminal)
    if inputs.reason:
        # The node ends the pod, which alone is no failure. While processes run the phase is held back, then it follows
        # from the exit codes. The kubelet does this in an eviction's podStatusFn, which only applies before the end. A
        # static pod keeps its reason, since it runs again after a shutdown by it.
        if inputs.over:
            return ended if phase != "Succeeded" or is_static(pod) else (phase, None, None)
        phase = (old.phase or "Running") if phase in TERMINAL_PHASES else phase
    return (phase, old.reason, old.message) if phase == old.phase else (phase, None, None)


def _other_conditions(pod: Pod, old: PodStatus, inputs: StatusInputs) -> tuple[PodCondition, ...]:
    """Conditions set by others, and DisruptionTarget once the node ends the pod for its own sake."""
    own = (*OWNED, DISRUPTION_TARGET, PENDING, IN_PROGRESS)
    others = [one for one in pod.status.conditions if one.type not in own]
    if not inputs.terminal:
        others.extend(inputs.resize)
    disruption = next((one for one in old.conditions if one.type == DISRUPTION_TARGET), None)
    if disruption is None and reasons.is_disruption(inputs.reason, inputs.message):
        disruption = PodCondition(
            type=DISRUPTION_TARGET,
            observed_generation=pod.metadata.generation,
            status="True",
            reason=reasons.TERMINATION_BY_KUBELET,
            message=reasons.DISRUPTIONS[inputs.reason] or inputs.message or None,
        )
    return tuple(others) if disruption is None else (*others, disruption)


def _host_ips(old: PodStatus, inputs: StatusInputs) -> tuple[str, ...]:
    """The node's addresses, at most two. Published ones stay while the Node has none, or may have others."""
    published = tuple(one.ip for one in old.host_ips) or ((old.host_ip,) if old.host_ip else ())
    found = inputs.host_ips if inputs.host_ips_told else published or inputs.host_ips
    return (found or published)[:2]


def takes_host_ips(view: PodView, inputs: StatusInputs) -> bool:
    """True if a pod on the host's network takes the Node's present addresses, unless it keeps its own.

    A pod without a ready sandbox keeps what it has. So does each while the Node has none or may have others, and while
    the machine has only loopback.
    """
    ready = any(sandbox.state == "ready" for sandbox in view.sandboxes)
    return ready and inputs.host_ips_told and any(ip != LOOPBACK for ip in inputs.host_ips)


def _pod_ips(
    pod: Pod, view: PodView, old: PodStatus, host_ips: tuple[str, ...], inputs: StatusInputs
) -> tuple[str, ...]:
    """The sandbox's sorted addresses. They stay after it has ended.

    On the host's network they are the node's. They stay until a sandbox or container changes, or the agent restarts.
    Only then the kubelet, too, has a new status in its cache (getPodIPs of pkg/kubelet/pleg). A node that gets a second
    family adds it. An address of loopback is from before the machine had another one.
    """
    if pod.spec.host_network:
        anew = not inputs.keeps_ips and takes_host_ips(view, inputs)
        published = () if anew else tuple(ip.ip for ip in old.pod_ips)
        before = tuple(ip for ip in published if ip != LOOPBACK) or host_ips[:1] or published
        second = [ip for ip in host_ips[1:] if len(before) == 1 and (":" in ip) != (":" in before[0])]
        return (*before, *second)
    ips = view.sandboxes[0].ips if view.sandboxes else ()
    if not ips:
        return tuple(ip.ip for ip in old.pod_ips)
    return sorted_ips(ips, inputs.node_ip)
