"""The Node's status and Lease, and when they are written."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from actors.node import policy
from actors.node.node_info import declared_features
from actors.node.policy import ImageFacts, WrittenStatus
from proto.agent.settings import Settings
from supervisor.config.kubeletconfig.feature_gates import known
from supervisor.config.kubeletconfig.gates.verdicts import verdicts


def status(**fields: Any) -> dict[str, Any]:
    found = policy.conditions((), (), (), "t0")
    return {"addresses": [{"type": "InternalIP", "address": "a"}], "conditions": found, **fields}


def later(wanted: dict[str, Any]) -> dict[str, Any]:
    return wanted | {"conditions": [one | {"lastHeartbeatTime": "t9"} for one in wanted["conditions"]]}


@pytest.mark.parametrize(
    ("stored_change", "wanted_change", "now", "due"),
    [
        ({}, {}, 10, False),
        ({}, {}, 300, True),
        ({"capacity": {"cpu": "9"}}, {}, 10, True),
        ({}, {"capacity": {"cpu": "9"}}, 10, True),
        ({"volumesAttached": ["others'"]}, {}, 10, False),
    ],
)
def test_status_is_written_after_a_change_or_when_it_is_time(
    stored_change: dict[str, Any], wanted_change: dict[str, Any], now: float, due: bool
) -> None:
    sent = status(capacity={"cpu": "2"}, newField={"dropped": "by this server"})
    stored = {name: value for name, value in sent.items() if name != "newField"}
    last = WrittenStatus(sent, stored, 0)
    assert policy.due(later(sent) | wanted_change, stored | stored_change, last, 300, now) is due
    assert policy.due(sent, stored, None, 300, now)


def test_foreign_conditions_cause_no_write() -> None:
    sent = status()
    others = sent | {"conditions": [*sent["conditions"], {"type": "NetworkUnavailable", "status": "False"}]}
    assert not policy.due(later(sent), others, WrittenStatus(sent, sent, 0), 300, 1)


def test_condition_keeps_its_transition_time_and_has_an_event() -> None:
    first = policy.conditions((), ["container runtime is down"], (), "t0")
    second = policy.conditions(["DiskPressure"], (), first, "t1")
    kubelets = [
        one for one in second if one["type"] not in ("KubeletConfigOk", "KubeletDegraded", "KubeletStorageError")
    ]
    assert {one["type"]: (one["status"], one["lastTransitionTime"]) for one in kubelets} == {
        "MemoryPressure": ("False", "t0"),
        "DiskPressure": ("True", "t1"),
        "PIDPressure": ("False", "t0"),
        "Ready": ("True", "t1"),
    }
    assert policy.ready_event(first, second) == "NodeReady"
    assert policy.ready_event(second, second) == ""


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("False", "True", "NodeReady"),
        ("True", "False", "NodeNotReady"),
        ("Unknown", "True", "NodeReady"),
        ("Unknown", "False", "NodeNotReady"),
        ("True", "True", ""),
        ("False", "False", ""),
        (None, "True", ""),
        (None, "False", ""),
    ],
)
def test_changes_of_ready_are_events_and_the_first_one_is_none(before: str | None, after: str, reason: str) -> None:
    """Eviction records the events of the pressures."""

    def found(ready: str, pressure: str) -> list[dict[str, Any]]:
        return [{"type": "DiskPressure", "status": pressure}, {"type": "Ready", "status": ready}]

    assert policy.ready_event(found(before, "False") if before else (), found(after, "True")) == reason


@pytest.mark.parametrize(("ready", "is_lost"), [("Unknown", True), ("True", False), ("False", False)])
def test_node_without_heartbeats_is_lost(ready: str, is_lost: bool) -> None:
    found = [{"type": "DiskPressure", "status": "Unknown"}, {"type": "Ready", "status": ready}]
    assert policy.is_lost(found) is is_lost
    assert not policy.is_lost([])


def test_several_problems_are_one_message() -> None:
    *_, ready = policy.conditions((), ["a", "b"], (), "t")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "KubeletNotReady", "[a, b]")


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("memory", 24684092 * 1024, "24684092Ki"),
        ("ephemeral-storage", 267847642337, "267847642337"),
        ("hugepages-2Mi", 0, "0"),
        ("pods", 1024, "1024"),
    ],
)
def test_quantities_are_written_as_the_kubelet_writes_them(name: str, amount: int, text: str) -> None:
    assert policy.quantities({name: amount}) == {name: text}


def test_largest_images_are_reported_with_five_names_at_most() -> None:
    large = ImageFacts(9, "id1", ("a", "b", "c", "d", "e", "f"))
    found = policy.images([ImageFacts(1, "id3", ("small",)), large, ImageFacts(5, "id2", ("middle",))], 2)
    assert found == [
        {"names": ["a", "b", "c", "d", "e"], "sizeBytes": 9},
        {"names": ["middle"], "sizeBytes": 5},
    ]


@pytest.mark.parametrize("order", list(itertools.permutations("123")))
def test_images_of_equal_size_are_ordered_by_id(order: tuple[str, ...]) -> None:
    found = policy.images([ImageFacts(5, f"sha256:{one}", (one,)) for one in order], 2)
    assert [one["names"] for one in found] == [["3"], ["2"]]


def test_existing_node_gets_default_labels_and_keeps_the_rest() -> None:
    wanted = policy.labels("n", "amd64", {"disk": "fast"})
    node = json.loads(json.dumps(policy.new_node("n", wanted, (), "", {})))
    assert policy.registration_patch(node, wanted) is None
    other = node | {"metadata": {**node["metadata"], "annotations": {}}}
    assert policy.registration_patch(other, wanted) == {"metadata": {"annotations": {policy.ATTACH: "true"}}}
    node["metadata"]["labels"] |= {"kubernetes.io/arch": "s390x", "disk": "slow"}
    assert policy.registration_patch(node, wanted) == {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}


@pytest.mark.parametrize(
    ("stored", "provided", "patch"),
    [
        (None, (), None),
        (None, ("192.0.2.7",), "192.0.2.7"),
        ("192.0.2.7", ("192.0.2.7", "fd00::7"), "192.0.2.7,fd00::7"),
    ],
)
def test_cloud_provider_gets_the_addresses_of_node_ip(
    stored: str | None, provided: tuple[str, ...], patch: str | None
) -> None:
    labels = {policy.OS: "linux", policy.ARCH: "amd64"}
    node = {"metadata": {"labels": labels, "annotations": {policy.PROVIDED_IP: stored} if stored else None}}
    wanted = {"metadata": {"annotations": {policy.PROVIDED_IP: patch}}} if patch else {}
    assert policy.metadata_patch(node, "amd64", provided) == wanted


def test_annotation_of_a_former_cloud_provider_is_removed() -> None:
    labels = {policy.OS: "linux", policy.ARCH: "amd64"}
    node = {"metadata": {"labels": labels, "annotations": {policy.PROVIDED_IP: "192.0.2.7"}}}
    assert policy.metadata_patch(node, "amd64", ()) == {"metadata": {"annotations": {policy.PROVIDED_IP: None}}}


def test_lease_keeps_its_fields_and_gets_its_node_as_owner() -> None:
    first = policy.lease("n", "", 40, "t0", None)
    assert "ownerReferences" not in first["metadata"]
    second = policy.lease("n", "u", 40, "t1", first | {"metadata": first["metadata"] | {"resourceVersion": "5"}})
    assert second["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert second["metadata"]["resourceVersion"] == "5"
    assert second["spec"] == {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "t1"}


def test_renewal_time_only_grows_when_the_clock_goes_back() -> None:
    def renewed(now: str, before: str) -> str:
        lease = policy.lease("n", "u", 40, now, {"metadata": {}, "spec": {"renewTime": before}})
        return str(lease["spec"]["renewTime"])

    noon, later = "2026-01-01T12:00:00.000000Z", "2026-01-01T12:00:10.000000Z"
    assert renewed(later, noon) == later
    assert renewed(noon, later) == "2026-01-01T12:00:10.000001Z"
    assert renewed(noon, "2026-01-01T13:00:10.9+01:00") == "2026-01-01T12:00:10.900001Z"
    assert renewed(noon, noon) == "2026-01-01T12:00:00.000001Z"
    for nonsense in ("", "yesterday", "9999-12-31T23:59:59.999999Z", "2026-01-01T12:00:10"):
        assert renewed(noon, nonsense) == noon


def test_websocket_feature_is_declared_only_when_enabled() -> None:
    name = "ExtendWebSocketsToKubelet"
    served, not_served = (declared_features(Settings(extend_websockets_to_kubelet=on)) for on in (True, False))
    assert served == [name, *not_served] == sorted(served)
    assert name not in not_served


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("runtime", [True, False])
def test_users_on_the_host_network_are_declared_if_the_runtime_can(gate: bool, runtime: bool) -> None:
    found = declared_features(Settings(users_on_host_network=gate), users_on_host_network=runtime)
    assert ("UserNamespacesHostNetworkSupport" in found) is (gate and runtime)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("agent", "now", "stays"),
    [("run 1", 160.0, True), ("run 2", 160.0, False), ("", 160.0, False), ("run 1", 90.0, False)],
)
def test_write_counts_for_its_run_of_the_agent(agent: str, now: float, stays: bool) -> None:
    wanted = {"conditions": [{"type": "Ready", "lastHeartbeatTime": "a"}]}
    write = policy.saved(WrittenStatus(wanted, wanted, 7.0), 100.0, "run 1")
    found = policy.restored(write, wanted, wanted, now, 500.0, agent)
    assert found == (WrittenStatus(wanted, wanted, 440.0) if stays else None)


def test_write_of_an_older_version_counts_for_no_run() -> None:
    write = policy.saved(WrittenStatus({}, {}, 7.0), 100.0, "run 1")
    older = policy.SavedWrite(write.sent, write.stored, write.at)
    assert policy.restored(older, {}, {}, 160.0, 500.0, "run 1") is None


def test_failures_are_tried_again_up_to_every_7_seconds() -> None:
    assert [policy.RETRY.delay_s(failures) for failures in range(1, 8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7]
    assert [policy.REGISTER_RETRY.delay_s(failures) for failures in (1, 2, 7, 8)] == [0.1, 0.2, 6.4, 7]


@pytest.mark.parametrize(
    ("was", "running_s", "written", "problem"),
    [
        ("True", 1.0, False, ""),
        ("True", 16.0, False, policy.CSI_NODE_MISSING),
        ("False", 1.0, False, policy.CSI_NODE_MISSING),
        ("False", 1.0, True, ""),
    ],
)
def test_restart_keeps_a_ready_node_ready(was: str, running_s: float, written: bool, problem: str) -> None:
    assert policy.csi_node_problem([{"type": "Ready", "status": was}], running_s, written=written) == problem


def test_own_conditions_come_before_ready_and_have_no_event() -> None:
    before = policy.conditions((), (), (), "t0")
    after = policy.conditions((), (), before, "t1", policy.AgentProblems(("probe",), "x" * 5000, "disk"))
    kinds = [one["type"] for one in after]
    assert kinds[3:] == ["KubeletConfigOk", "KubeletDegraded", "KubeletStorageError", "Ready"]
    assert [one["status"] for one in after[3:]] == ["False", "True", "True", "True"]
    assert len(after[3]["message"]) == policy.MAX_PROBLEM
    assert [one["lastTransitionTime"] for one in after[3:]] == ["t1", "t1", "t1", "t0"]
    assert policy.ready_event(before, after) == ""


def test_declared_features_are_built_and_on() -> None:
    for name in declared_features(Settings()):
        assert verdicts()[name].kind.startswith("built"), name
        assert known()[name].default, name
