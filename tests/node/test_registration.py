"""The Node is made, deleted, and made again; its Lease follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.node.registration import CLUSTER_PATH
from proto.agent.settings import Taint
from proto.node.node import Bootstrapped, SetVolumesInUse
from tests.harness import wait_for
from tests.kube.faulty_server import FaultyServer, Stall, failure
from tests.node.node_actor import LEASES, NODE, NODES, OWN, Server, world


def test_new_node_is_registered_with_its_settings_and_an_event(server: FaultyServer, tmp_path: Path) -> None:
    taint = Taint(key="dedicated", effect="NoSchedule", value="ci")
    settings = {"node_labels": {"disk": "fast", "kubernetes.io/hostname": "other"}, "register_with_taints": (taint,)}
    with world(server, tmp_path, provider_id="cloud://7", **settings) as one:
        wait_for(one.ready, 20)
        labels = one.node["metadata"]["labels"]
        assert (labels["disk"], labels["kubernetes.io/hostname"]) == ("fast", "other")
        assert one.node["spec"] == {
            "taints": [{"key": "dedicated", "value": "ci", "effect": "NoSchedule"}], "providerID": "cloud://7",
        }  # fmt: skip
        assert one.node["status"]["images"] == [{"names": ["a:1"], "sizeBytes": 7}]
        wait_for(one.reasons, 10)
        assert one.reasons() == ["NodeReady"], "that it was not at first is none"
        before = one.renewed()
        wait_for(lambda: one.renewed() > before, 10, "the Lease is renewed")
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": one.node["metadata"]["uid"]}
        wait_for(lambda: one.lease["metadata"].get("ownerReferences") == [owner], 10)


def shape(value: Any, path: str = "") -> set[str]:
    """Every path to a plain value; the items of a list share one."""
    if isinstance(value, dict):
        return {found for key, inner in value.items() for found in shape(inner, f"{path}.{key}")}
    if isinstance(value, list):
        return {found for inner in value for found in shape(inner, f"{path}[]")}
    return {path}


BY_OTHERS = {
    f".metadata.{name}"
    for name in ("creationTimestamp", "resourceVersion", "uid", "annotations.node.alpha.kubernetes.io/ttl")
}
"""Written by the API server, or by a controller."""


def test_node_and_lease_have_every_field_of_the_kubelets(server: FaultyServer, tmp_path: Path) -> None:
    golden = json.loads(Path(__file__).with_name("golden.json").read_text())
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.lease.get("metadata", {}).get("ownerReferences"), 30, "the Lease's owner")
        ours, theirs = shape(one.node) - BY_OTHERS, shape(golden["node"]) - BY_OTHERS
        own_huge_pages = {path for path in ours | theirs if "hugepages" in path}
        assert (ours ^ theirs) - own_huge_pages == {".apiVersion", ".kind"} & (ours ^ theirs)
        assert shape(one.lease) - BY_OTHERS == shape(golden["lease"]) - BY_OTHERS
        texts = ("type", "status", "reason", "message")
        conditions = [
            [[each[name] for name in texts] for each in node["status"]["conditions"] if each["type"] not in OWN]
            for node in (one.node, golden["node"])
        ]
        assert conditions[0] == conditions[1]
        assert one.node["status"]["daemonEndpoints"] == golden["node"]["status"]["daemonEndpoints"]
        assert one.node["status"]["declaredFeatures"] == golden["node"]["status"]["declaredFeatures"]


def test_deleted_node_stays_away_until_the_agent_restarts(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        wait_for(one.renewed, 10)
        before = one.node["metadata"]["uid"]
        one.server.forget(NODE, f"{LEASES}/n")
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        one.process.restart()
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        looks = len(server.of("GET", NODE))
        wait_for(lambda: len(server.of("GET", NODE)) >= looks + 4, 20, "looks for the Node")
        assert not one.node
        assert not one.lease, "its owner is gone"
        assert not one.state()["registered"]
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}})
        wait_for(one.ready, 20)
        wait_for(one.renewed, 20)
        assert one.lease["metadata"]["ownerReferences"][0]["uid"] == "made-by-hand"
        one.process.kill()
        one.server.forget(NODE)
        one.forget_run()
        one.process.start()
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] not in (before, "made-by-hand")


def test_lease_without_its_node_is_not_made_again(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, node_status_update_frequency_s=8.0, node_lease_duration_s=8.0) as one:
        wait_for(one.ready, 20)
        wait_for(one.renewed, 10)
        written = len(server.of("PATCH", f"{NODE}/status"))
        server.on("PATCH", f"{NODE}/status", Stall())
        one.process.tell(SetVolumesInUse(volumes=("v",), number=1))
        wait_for(lambda: len(server.of("PATCH", f"{NODE}/status")) > written, 10, "the status loop hangs")
        one.server.forget(NODE, f"{LEASES}/n")
        wait_for(lambda: one.lease or "NotFound" in one.state()["lease_error"], 20)
        assert not one.lease
        server.release()
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}})
        wait_for(one.renewed, 20)
        assert one.lease["metadata"]["ownerReferences"][0]["uid"] == "made-by-hand"


@pytest.mark.parametrize("killed", [False, True])
def test_node_joins_anew_when_the_server_has_lost_its_data(server: FaultyServer, tmp_path: Path, killed: bool) -> None:
    assert isinstance(server.behind, Server)
    # Before the actor: it asks for the cluster's identity in a few tries only.
    server.behind.put(CLUSTER_PATH, {"metadata": {"name": "kubernetes", "uid": "first"}, "spec": {}})
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        before = one.node["metadata"]["uid"]
        kept = Path(one.process.settings.run_dir, "node-registered.json")
        wait_for(lambda: kept.exists() and "first" in kept.read_text(), 10)
        if killed:
            one.process.restart()
            wait_for(one.ready, 20)
        one.server.forget(NODE)
        one.server.put(CLUSTER_PATH, {"metadata": {"name": "kubernetes", "uid": "second"}, "spec": {}})
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] != before
        wait_for(lambda: "second" in kept.read_text(), 10)


@pytest.mark.parametrize("killed", [False, True])
def test_deleted_node_is_registered_again_after_a_bootstrap(server: FaultyServer, tmp_path: Path, killed: bool) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        before = one.node["metadata"]["uid"]
        wait_for(lambda: Path(one.process.settings.run_dir, "node-registered.json").exists(), 10)
        one.server.forget(NODE)
        wait_for(lambda: "restart the agent to register it again" in one.state()["last_error"], 20)
        one.process.tell(Bootstrapped())
        if killed:
            wait_for(one.ready, 20)
            one.process.restart()
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] != before


def test_without_registration_the_actor_waits_for_its_node(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, register_node=False) as one:
        wait_for(lambda: "NotFound" in one.state()["last_error"], 20)
        assert one.node == {}
        one.server.put(NODE, {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}, "futureField": {"a": 1}})
        wait_for(one.ready, 20)
        assert one.node["futureField"] == {"a": 1}


MADE_BY_HAND = {"metadata": {"name": "n", "uid": "made-by-hand"}, "spec": {}}


def of_the_node(server: FaultyServer) -> list[str]:
    """Methods of the calls for the Node, oldest first."""
    return [one.method for one in list(server.calls) if one.path in (NODES, NODE)]


def test_node_that_may_not_be_created_is_adopted(server: FaultyServer, tmp_path: Path) -> None:
    assert isinstance(server.behind, Server)
    server.always("POST", NODES, failure(403, "Forbidden"))
    server.behind.put(NODE, MADE_BY_HAND)
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] == "made-by-hand"
        assert of_the_node(server)[0] == "GET"


def test_with_the_gate_a_node_is_read_only_when_it_exists(server: FaultyServer, tmp_path: Path) -> None:
    """KubeletRegistrationGetOnExistsOnly: a node that may not create its Node does not register."""
    assert isinstance(server.behind, Server)
    server.always("POST", NODES, failure(403, "Forbidden"))
    server.behind.put(NODE, MADE_BY_HAND)
    with world(server, tmp_path, create_node_first=True) as one:
        wait_for(lambda: "Forbidden" in one.state()["last_error"], 20)
        wait_for(lambda: len(server.of("POST", NODES)) > 1, 20, "it tries again")
        assert set(of_the_node(server)) == {"POST"}
        assert not one.ready()
        server.heal()
        wait_for(one.ready, 20)
        assert one.node["metadata"]["uid"] == "made-by-hand"
