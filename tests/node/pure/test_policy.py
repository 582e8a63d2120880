"""What the Node says and when it is written: tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.node import policy
from actors.node.machine import declared_features
from actors.node.policy import Written
from proto.agent.settings import Settings


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
def test_a_status_is_written_when_either_side_changed_or_it_is_time(
    stored_change: dict[str, Any], wanted_change: dict[str, Any], now: float, due: bool
) -> None:
    sent = status(capacity={"cpu": "2"}, newField={"dropped": "by this server"})
    stored = {name: value for name, value in sent.items() if name != "newField"}
    last = Written(sent, stored, 0)
    assert policy.due(later(sent) | wanted_change, stored | stored_change, last, 300, now) is due
    assert policy.due(sent, stored, None, 300, now)


def test_conditions_of_others_are_no_change() -> None:
    sent = status()
    others = sent | {"conditions": [*sent["conditions"], {"type": "NetworkUnavailable", "status": "False"}]}
    assert not policy.due(later(sent), others, Written(sent, sent, 0), 300, 1)


def test_a_transition_has_its_time_until_the_next_and_its_event() -> None:
    first = policy.conditions((), ["container runtime is down"], (), "t0")
    second = policy.conditions(["DiskPressure"], (), first, "t1")
    assert {one["type"]: (one["status"], one["lastTransitionTime"]) for one in second} == {
        "MemoryPressure": ("False", "t0"),
        "DiskPressure": ("True", "t1"),
        "PIDPressure": ("False", "t0"),
        "Ready": ("True", "t1"),
    }
    assert policy.transitions(first, second) == ["NodeHasDiskPressure", "NodeReady"]
    assert policy.transitions(second, second) == []


def test_several_problems_are_one_message() -> None:
    *_, ready = policy.conditions((), ["a", "b"], (), "t")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "KubeletNotReady", "[a, b]")


def test_a_runtime_without_network_is_told_in_the_kubelets_words() -> None:
    found = policy.runtime_problems(
        [
            {"type": "RuntimeReady", "status": True, "reason": "", "message": ""},
            {"type": "NetworkReady", "status": False, "reason": "NetworkPluginNotReady", "message": "no config"},
        ]
    )
    assert found == [
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no config"
    ]


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


def test_the_largest_images_are_reported_with_five_names_at_most() -> None:
    found = policy.images([(("small",), 1), (("a", "b", "c", "d", "e", "f"), 9), (("middle",), 5)], 2)
    assert found == [
        {"names": ["a", "b", "c", "d", "e"], "sizeBytes": 9},
        {"names": ["middle"], "sizeBytes": 5},
    ]


def test_an_existing_node_gets_back_what_every_node_has_and_keeps_the_rest() -> None:
    wanted = policy.labels("n", "amd64", {"disk": "fast"})
    node = json.loads(json.dumps(policy.new_node("n", wanted, policy.notes_of(True), (), "", {})))
    attached = policy.notes_of(True)
    assert policy.reconciled(node, wanted, attached) is None
    assert policy.reconciled(node, wanted, {}) == {"metadata": {"annotations": {policy.ATTACH: None}}}
    node["metadata"]["labels"] |= {"kubernetes.io/arch": "s390x", "disk": "slow"}
    assert policy.reconciled(node, wanted, attached) == {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}


def test_a_lease_keeps_what_it_has_and_gets_its_owner_once_the_node_is_known() -> None:
    first = policy.lease("n", "", 40, "t0", None)
    assert "ownerReferences" not in first["metadata"]
    second = policy.lease("n", "u", 40, "t1", first | {"metadata": first["metadata"] | {"resourceVersion": "5"}})
    assert second["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert second["metadata"]["resourceVersion"] == "5"
    assert second["spec"] == {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "t1"}


def test_the_time_of_a_renewal_only_grows_whatever_the_clock_does() -> None:
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


def test_websocket_clients_are_sent_here_only_where_they_are_served() -> None:
    name = "ExtendWebSocketsToKubelet"
    served, not_served = (declared_features(Settings(extend_websockets_to_kubelet=on)) for on in (True, False))
    assert served == [name, *not_served] == sorted(served)
    assert name not in not_served
