"""Tables of the pod resources API's answers."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from actors.resources.devices.holdings import Holding
from actors.resources.devices.inventory import NO_NODE, Device
from actors.resources.pod_resources import answers
from actors.resources.pod_resources.answers import ContainerShare, MemoryBlock, NodeShare, PodShare

GPU = "vendor.test/gpu"


def fields(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def near(*nodes: int) -> dict[str, Any]:
    return {"nodes": [{"ID": str(node)} if node else {} for node in nodes]}


def test_pods_are_sorted_by_namespace_and_name() -> None:
    pods = [PodShare(namespace, name, ()) for namespace, name in [("b", "a"), ("a", "b"), ("a", "a")]]
    found = fields(answers.listed(pods))["pod_resources"]
    assert [(one["namespace"], one["name"]) for one in found] == [("a", "a"), ("a", "b"), ("b", "a")]


def test_a_container_has_its_cpus_memory_and_devices() -> None:
    holdings = (Holding("u", "c", GPU, {1: ("d1", "d0"), 0: ("d0",)}), Holding("u", "c", "x", {NO_NODE: ("e",)}))
    memory = (MemoryBlock("memory", 1024, (1, 0)), MemoryBlock("hugepages-2Mi", 2 << 20, (0,)))
    share = ContainerShare("c", cpus={3, 1}, memory=memory, holdings=holdings)
    (found,) = fields(answers.one_pod(PodShare("ns", "web", (share,))))["pod_resources"]["containers"]
    assert found == {
        "name": "c",
        "cpu_ids": ["1", "3"],
        "memory": [
            {"memory_type": "memory", "size": "1024", "topology": near(0, 1)},
            {"memory_type": "hugepages-2Mi", "size": str(2 << 20), "topology": near(0)},
        ],
        "devices": [
            {"resource_name": GPU, "device_ids": ["d0"], "topology": near(0)},
            {"resource_name": GPU, "device_ids": ["d0"], "topology": near(1)},
            {"resource_name": GPU, "device_ids": ["d1"], "topology": near(1)},
            {"resource_name": "x", "device_ids": ["e"]},
        ],
    }


def test_version_1alpha1_has_devices_only() -> None:
    share = ContainerShare("c", cpus={1}, holdings=(Holding("u", "c", GPU, {0: ("d",)}),))
    found = answers.listed_devices([PodShare("ns", "web", (share,))])
    devices = [{"resource_name": GPU, "device_ids": ["d"]}]
    assert fields(found)["pod_resources"] == [
        {"name": "web", "namespace": "ns", "containers": [{"name": "c", "devices": devices}]}
    ]
    assert found == found.FromString(found.SerializeToString())


def test_a_container_without_anything_has_its_name() -> None:
    found = fields(answers.one_pod(PodShare("ns", "web", (ContainerShare("c"),))))
    assert found == {"pod_resources": {"namespace": "ns", "name": "web", "containers": [{"name": "c"}]}}


def test_unhealthy_devices_are_not_allocatable() -> None:
    devices = {"b": Device("b"), "a": Device("a", nodes=frozenset({1})), "ill": Device("ill", healthy=False)}
    node = NodeShare(cpus={2, 0}, memory=(MemoryBlock("memory", 5, (0,)),), devices={GPU: devices})
    assert fields(answers.allocatable(node)) == {
        "cpu_ids": ["0", "2"],
        "memory": [{"memory_type": "memory", "size": "5", "topology": near(0)}],
        "devices": [
            {"resource_name": GPU, "device_ids": ["a"], "topology": near(1)},
            {"resource_name": GPU, "device_ids": ["b"]},
        ],
    }


def test_a_node_that_assigns_nothing_has_an_empty_answer() -> None:
    assert fields(answers.allocatable(NodeShare())) == {}
