"""The node's fields of a pod's status, and the patch that writes them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from actors.status.status_patch import (
    comparable,
    digest,
    is_ready,
    node_status,
    patch_of,
    with_api_times,
    with_disruption_time,
)
from proto.v1 import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    HostIP,
    ObjectMeta,
    Pod,
    PodCondition,
    PodIP,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)

T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"


def condition(kind: str, status: str = "True", **more: Any) -> PodCondition:
    return PodCondition(type=kind, status=status, **{"last_transition_time": T1, **more})


def status(phase: str = "Running", *conditions: PodCondition, **more: Any) -> PodStatus:
    return PodStatus(phase=phase, conditions=conditions or (condition("Ready"),), **more)


def pod(of: PodStatus, policy: str = "Always", **container: Any) -> Pod:
    spec = PodSpec(restart_policy=policy, containers=(Container(name="c", **container),))
    return Pod(metadata=ObjectMeta(name="p", namespace="n", uid="u"), spec=spec, status=of)


def types(of: PodStatus) -> list[str]:
    return [one.type for one in of.conditions]


ENDED = ContainerState(terminated=ContainerStateTerminated(exit_code=0))
FAILED = ContainerState(terminated=ContainerStateTerminated(exit_code=3))
RUNS = ContainerState(running=ContainerStateRunning(started_at=T1))


@pytest.mark.parametrize(
    ("ours", "theirs", "stage", "said"),
    [
        ("Running", "Pending", "sync", "Running"),
        ("Succeeded", "Running", "sync", "Running"),
        ("Failed", "Pending", "terminating", "Pending"),
        ("Failed", "", "terminating", "Pending"),
        ("Failed", "Running", "terminated", "Failed"),
        ("Succeeded", "Running", "released", "Succeeded"),
        ("Running", "Failed", "sync", "Failed"),
        ("Succeeded", "Failed", "released", "Failed"),
        ("Failed", "Succeeded", "terminating", "Succeeded"),
        ("Failed", "Failed", "sync", "Failed"),
    ],
)
def test_phase_is_terminal_once_nothing_runs_and_stays_so(ours, theirs, stage, said):
    api = PodStatus(phase=theirs or None, reason="theirs", message="m")
    own = node_status(pod(status(ours, reason="ours")), stage, api)
    assert own.phase == said
    assert own.reason == ("ours" if said == ours else "theirs")


@pytest.mark.parametrize(
    ("phase", "own", "said"),
    [
        ("Running", {}, ("NodeLost", "unresponsive")),
        ("Running", {"reason": "Own"}, ("Own", "unresponsive")),
        ("Running", {"reason": "Own", "message": "m"}, ("Own", "m")),
        ("Pending", {}, (None, None)),
    ],
)
def test_another_clients_reason_stays_while_the_phase_does(phase, own, said):
    api = status(phase, reason="NodeLost", message="unresponsive")
    written = node_status(pod(status("Running", **own)), "sync", api)
    assert (written.reason, written.message) == said
    sent = patch(written, api)
    assert (sent["reason"], sent["message"]) == said
    assert (digest(written) == digest(comparable(api, written))) is (said[0] == "NodeLost"), "nothing to write"


def test_conditions_of_other_owners_are_left_out():
    given = status("Running", condition("example.com/gate"), condition("Ready"), condition("DisruptionTarget"))
    api = PodStatus(phase="Running", conditions=(condition("example.com/gate", "False"),))
    assert types(node_status(pod(given), "sync", api)) == ["Ready"]


@pytest.mark.parametrize(("stage", "said"), [("terminating", False), ("terminated", True), ("released", True)])
def test_disruption_target_is_written_with_the_pods_end(stage, said):
    given = status("Failed", condition("DisruptionTarget"), condition("Ready", "False"))
    own = node_status(pod(given), stage, PodStatus(phase="Running"))
    assert ("DisruptionTarget" in types(own)) is said
    once_stored = node_status(pod(given), stage, PodStatus(phase="Failed" if said else "Running"))
    assert digest(once_stored) == digest(own)


@pytest.mark.parametrize(
    ("there", "since"),
    [((), T2), ((condition("DisruptionTarget", last_transition_time=T0),), T0),
     ((condition("DisruptionTarget", "False", last_transition_time=T0),), T2)],
)  # fmt: skip
def test_disruption_target_begins_when_the_server_gets_it(there, since):
    given = status("Failed", condition("DisruptionTarget"), condition("Ready", "False"))
    after = with_disruption_time(given, status("Running", *there), T2)
    assert [(one.type, one.last_transition_time) for one in after.conditions] == [
        ("DisruptionTarget", since), ("Ready", T1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "stage", "reason"),
    [
        ("Succeeded", "Running", "terminated", "PodCompleted"),
        ("Failed", "Running", "terminated", "PodFailed"),
        ("Running", "Failed", "sync", "PodFailed"),
        ("Running", "Succeeded", "sync", "PodCompleted"),
    ],
)
@pytest.mark.parametrize("gate", ["True", "False"])
def test_ended_pod_is_not_ready(ours, theirs, stage, reason, gate):
    ready = condition("Ready", gate, reason="ReadinessGatesNotReady", message="m")
    given = status(ours, ready, condition("ContainersReady"), condition("Initialized"))
    own = node_status(pod(given), stage, PodStatus(phase=theirs))
    assert [(one.type, one.status, one.reason, one.message) for one in own.conditions] == [
        ("Ready", "False", reason, None),
        ("ContainersReady", "False", reason, None),
        ("Initialized", "True", None, None),
    ]
    assert not is_ready(own)


def test_reason_of_an_ended_pod_that_is_not_ready_stays():
    given = status("Failed", condition("Ready", "False", reason="Own"), condition("ContainersReady", "False"))
    own = node_status(pod(given), "terminated", PodStatus())
    assert [one.reason for one in own.conditions] == ["Own", None]


def test_claims_and_nominated_node_are_left_out():
    given = status(
        resource_claim_statuses=(PodResourceClaimStatus(name="c"),), nominated_node_name="n", qos_class="Burstable"
    )
    own = node_status(pod(given), "sync", PodStatus())
    assert (own.resource_claim_statuses, own.nominated_node_name, own.qos_class) == ((), None, "Burstable")


RULE = ContainerRestartRule(action="Restart", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(0, 3)))


@pytest.mark.parametrize(
    ("policy", "container", "was", "goes_back"),
    [
        ("Always", {}, ENDED, True),
        ("Never", {}, ENDED, False),
        ("Never", {}, FAILED, False),
        ("OnFailure", {}, ENDED, False),
        ("OnFailure", {}, FAILED, True),
        ("Never", {"restart_policy": "Never", "restart_policy_rules": (RULE,)}, FAILED, True),
        ("Never", {"restart_policy": "Always"}, ENDED, True),
    ],
)
def test_ended_container_that_may_not_restart_stays_ended(policy, container, was, goes_back):
    api = PodStatus(phase="Running", container_statuses=(ContainerStatus(name="c", state=was),))
    given = status(container_statuses=(ContainerStatus(name="c", state=RUNS, restart_count=1),))
    (said,) = node_status(pod(given, policy, **container), "sync", api).container_statuses
    assert (said.state == RUNS) is goes_back
    assert said.state == (RUNS if goes_back else was)


def test_api_times_are_adopted_for_unchanged_conditions():
    given = status("Running", condition("Ready", last_transition_time=T2), condition("Initialized", "True"))
    api = PodStatus(start_time=T1, conditions=(condition("Ready"), condition("Initialized", "False")))
    after = with_api_times(replace(given, start_time=T2), api)
    assert after.start_time == T1
    assert [one.last_transition_time for one in after.conditions] == [T1, T1]
    turned = with_api_times(status("Running", condition("Ready", "False", last_transition_time=T2)), api)
    assert turned.conditions[0].last_transition_time == T2


# Patches


def patch(own: PodStatus, api: PodStatus) -> dict[str, Any]:
    made = patch_of("uid", own, api)
    assert made["metadata"] == {"uid": "uid"}
    said: dict[str, Any] = made["status"]
    return said


def test_patch_has_all_our_fields_and_nulls_for_absent_ones():
    own = status(host_ip="1.2.3.4", resources=ResourceRequirements())
    said = patch(own, PodStatus())
    assert (said["phase"], said["hostIP"], said["resources"]) == ("Running", "1.2.3.4", {})
    assert said["reason"] is said["message"] is said["podIP"] is said["initContainerStatuses"] is None
    assert "nominatedNodeName" not in said
    assert "podIPs" not in said


def test_conditions_are_in_our_order_after_foreign_ones():
    own = status("Running", condition("Initialized"), condition("Ready", "False", reason="why"))
    api = PodStatus(conditions=(condition("PodResizePending"), condition("Ready"), condition("gate")))
    said = patch(own, api)
    assert said["$setElementOrder/conditions"] == [{"type": "gate"}, {"type": "Initialized"}, {"type": "Ready"}]
    initialized, ready, gone = said["conditions"]
    assert (initialized["reason"], ready["reason"], ready["message"]) == (None, "why", None)
    assert gone == {"$patch": "delete", "type": "PodResizePending"}


def test_patch_deletes_only_stale_addresses():
    own = status(pod_ips=(PodIP(ip="10.0.0.2"),), host_ips=(HostIP(ip="1.1.1.1"),))
    said = patch(own, PodStatus(pod_ips=(PodIP(ip="10.0.0.1"), PodIP(ip="10.0.0.2"))))
    assert said["podIPs"] == [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}]
    assert said["hostIPs"] == [{"ip": "1.1.1.1"}]


def test_patch_removes_stale_quantities():
    own = status(
        allocated_resources={"cpu": "1"}, resources=ResourceRequirements(limits={"cpu": "2"}, requests={"cpu": "1"})
    )
    api = PodStatus(
        allocated_resources={"cpu": "1", "memory": "1Gi"},
        resources=ResourceRequirements(limits={"memory": "1Gi"}, requests={"cpu": "1"}),
    )
    said = patch(own, api)
    assert said["allocatedResources"] == {"cpu": "1", "memory": None}
    assert said["resources"] == {"limits": {"cpu": "2", "memory": None}, "requests": {"cpu": "1"}}


def test_comparison_ignores_fields_of_other_owners():
    own = status("Running", condition("Initialized"), condition("Ready"))
    api = PodStatus(
        phase="Running",
        nominated_node_name="n",
        conditions=(condition("gate"), condition("Ready"), condition("Initialized")),
    )
    assert digest(comparable(api, own)) == digest(own)
    assert digest(comparable(replace(api, pod_ip="10.0.0.1"), own)) != digest(own)
