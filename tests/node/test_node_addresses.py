"""The Node's addresses and pod CIDR, and who is told of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proto.agent.supervisor import Started
from proto.node.certificates import SetNodeAddresses
from proto.node.node import SetVolumesInUse
from proto.pods.pod_workers import SetHostIPs
from tests.harness import wait_for
from tests.kube.faulty_server import FaultyServer
from tests.node.node_actor import NODE, NODE_IP, Server, world

OTHER = {"machineID": "m-other", "systemUUID": "s-other", "bootID": "b-other"}


def test_runtime_gets_pod_cidr_again_after_it_was_away(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path) as one:
        wait_for(one.ready, 20)
        one.server.put(NODE, one.node | {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}})
        wait_for(lambda: one.runtime.cidrs == ["10.1.0.0/24,fd00::/64"], 10)
        one.runtime.up = False
        wait_for(lambda: one.reasons()[-1] == "NodeNotReady", 20)
        one.runtime.up = True
        wait_for(lambda: len(one.runtime.cidrs) == 2, 10)


def test_configured_pod_cidr_is_given_until_the_node_has_one(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, pod_cidr="10.9.0.0/24") as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.runtime.cidrs == ["10.9.0.0/24"], 10)
        one.server.put(NODE, one.node | {"spec": {"podCIDRs": ["10.1.0.0/24"]}})
        wait_for(lambda: one.runtime.cidrs[1:] == ["10.1.0.0/24"], 10)


def test_standalone_runtime_gets_the_configured_pod_cidr(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, kubeconfig="", pod_cidr="10.9.0.0/24,fd00::/64") as one:
        wait_for(lambda: one.state()["pod_cidr"] == "10.9.0.0/24,fd00::/64", 10)
        one.runtime.up = False
        wait_for(lambda: not one.state()["pod_cidr"], 10)
        one.runtime.up = True
        wait_for(lambda: len(one.runtime.cidrs) == 2, 10)


def test_external_cloud_sets_addresses_and_gets_the_provided_ip(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, cloud_provider="external") as one:
        wait_for(one.ready, 20)
        assert one.node["spec"]["taints"][0]["key"] == "node.cloudprovider.kubernetes.io/uninitialized"
        note = "alpha.kubernetes.io/provided-node-ip"
        wait_for(lambda: one.node["metadata"]["annotations"].get(note) == "192.0.2.7", 10)
        assert {"type": "InternalIP", "address": "192.0.2.7"} in one.node["status"]["addresses"]
        cloud = [{"type": "ExternalIP", "address": "203.0.113.9"}]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": cloud}})
        before = one.renewed()
        wait_for(lambda: one.renewed() > before, 10)
        time.sleep(1.2)  # two looks
        assert one.node["status"]["addresses"] == cloud


@pytest.mark.parametrize(
    ("node_ip", "wanted"),
    [
        ("", [{"type": "Hostname", "address": "n"}]),
        (f" {NODE_IP} ", [{"type": "InternalIP", "address": NODE_IP}, {"type": "Hostname", "address": "n"}]),
    ],
)
def test_node_has_its_own_addresses_until_the_cloud_sets_them(
    server: FaultyServer, tmp_path: Path, node_ip: str, wanted: list[dict[str, str]]
) -> None:
    with world(server, tmp_path, cloud_provider="external", node_ip=node_ip) as one:
        wait_for(one.ready, 20)
        assert one.node["status"]["addresses"] == wanted


@pytest.mark.parametrize("cloud", ["", "external"])
def test_node_ip_of_another_machine_is_not_reported(server: FaultyServer, tmp_path: Path, cloud: str) -> None:
    with world(server, tmp_path, node_ip="127.0.0.1", cloud_provider=cloud) as one:
        wait_for(one.ready, 20)
        wait_for(lambda: one.state()["no_address"].startswith("cannot use --node-ip 127.0.0.1: "), 20)
        assert "addresses" not in one.node["status"]
        assert "alpha.kubernetes.io/provided-node-ip" not in one.node["metadata"]["annotations"]
        before = [{"type": "InternalIP", "address": "203.0.113.9"}]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": before}})
        written = len(server.of("PATCH", f"{NODE}/status"))
        one.process.tell(SetVolumesInUse(volumes=("kubernetes.io/csi/d^a",)))
        wait_for(lambda: len(server.of("PATCH", f"{NODE}/status")) > written, 20)
        wait_for(lambda: one.node["status"].get("volumesInUse"), 20)
        assert one.node["status"]["addresses"] == before


def test_peers_are_told_the_addresses_of_the_node(server: FaultyServer, tmp_path: Path) -> None:
    with world(server, tmp_path, cloud_provider="external", node_ip="") as one:
        pods, certificates = (one.process.peers[name] for name in ("pod_workers", "certificates"))
        wait_for(lambda: [each.ips for each in pods.of(SetHostIPs)] == [()], 20, "the cloud has not said yet")
        cloud = [("ExternalIP", "203.0.113.9"), ("InternalIP", "10.0.0.1"), ("InternalDNS", "n.cloud.test")]
        stored = [{"type": kind, "address": address} for kind, address in cloud]
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"addresses": stored}})
        wait_for(lambda: pods.of(SetHostIPs)[-1].ips == ("10.0.0.1",), 20)
        said = wait_for(lambda: certificates.of(SetNodeAddresses)[1:], 20)
        assert [(each.type, each.address) for each in said[0].addresses] == cloud
        looks = len(server.of("GET", NODE))
        wait_for(lambda: len(server.of("GET", NODE)) >= looks + 3, 20, "looks at the Node")
        assert (len(pods.of(SetHostIPs)), len(certificates.of(SetNodeAddresses))) == (2, 2), "with changes only"
        one.process.publish(Started(name="pod_workers", incarnation=2))
        wait_for(lambda: len(pods.of(SetHostIPs)) == 3, 20, "a new peer is told")
        assert len(certificates.of(SetNodeAddresses)) == 2
        one.process.restart()
        wait_for(lambda: len(certificates.of(SetNodeAddresses)) == 3, 20, "by the next actor, too")
        assert pods.of(SetHostIPs)[-1].ips == ("10.0.0.1",)


def test_node_name_of_another_machine_is_reported(server: FaultyServer, tmp_path: Path) -> None:
    assert isinstance(server.behind, Server)
    with world(server, tmp_path) as one:
        wait_for(lambda: one.state()["status_age_s"] is not None, 20)
        assert one.state()["name_held_by"] == ""
        one.server.put(NODE, one.node | {"status": one.node["status"] | {"nodeInfo": OTHER}})
        wait_for(lambda: "NodeNameConflict" in one.reasons(), 10)
        wait_for(lambda: one.node["status"]["nodeInfo"]["machineID"] != "m-other", 10, "set right, as upstream does")
