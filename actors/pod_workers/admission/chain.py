"""Runs the kubelet's admission checks in their order, with the kubelet's reasons and messages.

First node pressure (pkg/kubelet/eviction, Admit) and sysctls (pkg/kubelet/sysctl). Then the resources actor assigns
CPUs, memory and devices. Then the predicates (pkg/kubelet/lifecycle/predicate.go) and AppArmor (pkg/security/apparmor).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actors._cgroup.quantities.qos import qos_class
from actors._host.node.critical import is_critical, is_static
from actors.pod_workers.admission import affinity, ports, preemption, resources, sysctls, taints
from actors.pod_workers.admission.node_info import NodeInfo
from actors.pod_workers.admission.resources import Share, Shortage
from actors.pod_workers.cri_config.security import app_armor_profile, wants_app_armor
from actors.pod_workers.model import reasons
from proto.v1 import Pod

UNEXPECTED = "UnexpectedAdmissionError"
NODE_AFFINITY = "NodeAffinity"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod may run."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The pod may not run and becomes Failed. Its event has `message`, its status `status_message`."""

    reason: str
    message: str

    @property
    def status_message(self) -> str:
        """Of the pod's status."""
        return reasons.REJECTED + self.message


@dataclass(frozen=True, slots=True)
class Preempt:
    """The pod may run once these pods have terminated."""

    victims: tuple[Share, ...]
    resource: str
    """The first resource of which there is too little."""


Verdict = Admitted | Rejection | Preempt


def rejection_before_resources(pod: Pod, node: NodeInfo, pressure: Iterable[str]) -> Rejection | None:
    """Reject a new pod before anything is assigned to it. None: go on.

    `pressure`: the node's conditions, MemoryPressure, DiskPressure, PIDPressure. Raises QuantityError.
    """
    return _under_pressure(pod, set(pressure)) or _forbidden_sysctl(pod, node)


def admit(wanted: Share, others: Iterable[Share], node: NodeInfo) -> Verdict:
    """Decide on a new pod beside `others`, the admitted pods that have not terminated."""
    rejection = _unsupported(wanted.pod, node)
    if rejection is not None:
        return rejection
    verdict = _predicates(wanted, list(others), node)
    if isinstance(verdict, Rejection):
        return verdict
    return _app_armor(wanted.pod, node) or verdict


def _under_pressure(pod: Pod, conditions: set[str]) -> Rejection | None:
    if not conditions or is_critical(pod):
        return None
    if conditions == {"MemoryPressure"} and (
        qos_class(pod) != "BestEffort" or taints.tolerated(pod, taints.MEMORY_PRESSURE)
    ):
        return None
    return Rejection("Evicted", f"The node had condition: [{' '.join(sorted(conditions))}]. ")


def _forbidden_sysctl(pod: Pod, node: NodeInfo) -> Rejection | None:
    forbidden = sysctls.forbidden(pod, node.sysctls)
    return Rejection(sysctls.REASON, forbidden) if forbidden else None


def _unsupported(pod: Pod, node: NodeInfo) -> Rejection | None:
    """Problems that no eviction solves."""
    if pod.metadata.labels.get("kubernetes.io/os", "linux") != "linux":
        return Rejection(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if pod.spec.os is not None and pod.spec.os.name != "linux":
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    context = pod.spec.security_context
    strict = context is not None and context.supplemental_groups_policy == "Strict"
    if strict and not node.features.supplemental_groups_policy:
        return Rejection(
            "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
        )
    return None


def _predicates(wanted: Share, others: list[Share], node: NodeInfo) -> Verdict:
    """Repeat the scheduler's filters with the node's own facts. The first failure counts.

    A critical pod that lacks resources preempts other pods, if that frees enough.
    """
    short = resources.shortages(wanted, others, node.allocatable)
    failed = _failed_predicate(wanted, others, node)
    critical = is_critical(wanted.pod)
    if short and not critical:
        return Rejection(short[0].reason, short[0].message)
    if failed is not None:
        return failed
    return _make_room(wanted, others, short) if short else Admitted()


def _failed_predicate(wanted: Share, others: list[Share], node: NodeInfo) -> Rejection | None:
    pod = wanted.pod
    if not affinity.matches(pod, node.labels, node.name):
        return _predicate(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector")
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return _predicate("NodeName", "node(s) didn't match the requested node name")
    if ports.conflict(wanted.ports, (port for other in others for port in other.ports)):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    untolerated = taints.untolerated(pod, node.taints, compare=node.compare_taint_values)
    if untolerated is not None and not is_static(pod):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, description: str) -> Rejection:
    return Rejection(name, f"Predicate {name} failed: {description}")


def _make_room(wanted: Share, others: list[Share], short: list[Shortage]) -> Verdict:
    try:
        victims = preemption.victims(wanted.pod, others, short)
    except preemption.NoPodsToPreempt as error:
        return Rejection(
            UNEXPECTED,
            "Unexpected error while attempting to recover from admission failure: "
            f"preemption: error finding a set of pods to preempt: {error}",
        )
    return Preempt(tuple(victims), short[0].resource)


def _app_armor(pod: Pod, node: NodeInfo) -> Rejection | None:
    if not wants_app_armor(pod):
        return None
    problem = "" if node.app_armor else "AppArmor is not enabled on the host"
    for container in () if problem else (*pod.spec.init_containers, *pod.spec.containers):
        profile = app_armor_profile(pod, container)
        if profile is None or profile.type != "Localhost":
            continue
        if profile.localhost_profile is None:
            problem = problem or "missing localhost apparmor profile name"
        elif not profile.localhost_profile.strip():
            problem = problem or f'invalid localhost apparmor profile name: "{profile.localhost_profile}"'
    return Rejection("AppArmor", f"Cannot enforce AppArmor: {problem}") if problem else None
