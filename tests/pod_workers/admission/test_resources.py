"""A pod is refused when the node lacks a resource that it requests, with the kubelet's message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.pod_workers.admission import NodeInfo, Share
from actors.pod_workers.model.allocation import resources_of
from proto.v1 import Pod, PodStatus
from tests.pod_workers.admission.pods import GI, LABELS, NODE, OK, judged, pod

GONE = "example.com/gone"
"""An extended resource of which the node has none any more."""


def short(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", text


@pytest.mark.parametrize(
    ("wanted", "others", "expected"),
    [
        ({}, [], OK),
        ({"cpu": "2", "memory": "4Gi"}, [], OK),
        ({"cpu": "2001m"}, [], short("cpu", 2001, 0, 2000)),
        ({"cpu": "64"}, [{"cpu": "50m"}], short("cpu", 64000, 50, 2000)),
        ({"cpu": "1"}, [{"cpu": "1"}], OK),
        ({"cpu": "1"}, [{"cpu": "1"}, {"cpu": "1m"}], short("cpu", 1000, 1001, 2000)),
        ({"memory": "1Gi"}, [{"memory": "3Gi"}, {"memory": "1Mi"}], short("memory", GI, 3 * GI + 2**20, 4 * GI)),
        ({"cpu": "3", "memory": "5Gi"}, [], short("cpu", 3000, 0, 2000)),
        ({"ephemeral-storage": "11Gi"}, [], short("ephemeral-storage", 11 * GI, 0, 10 * GI)),
        ({"hugepages-2Mi": "4Mi"}, [], short("hugepages-2Mi", 4 * 2**20, 0, 0)),
        ({"hugepages-1Gi": "1Gi"}, [], short("hugepages-1Gi", GI, 0, 0)),
        ({"example.com/gpu": "3"}, [], OK),  # not this node's to count
        ({}, [{}, {}, {}], OK),
        ({}, [{}, {}, {}, {}], short("pods", 1, 4, 4)),
        ({"cpu": "9"}, [{}, {}, {}, {}], short("pods", 1, 4, 4)),
        ({"cpu": "0"}, [{"cpu": "5"}], OK),  # asks for nothing, so nothing of it is short
    ],
)
def test_resources(wanted, others, expected):
    there = [pod(f"o{index}", requests=requests) for index, requests in enumerate(others)]
    assert judged(pod(requests=wanted), *there) == expected


def test_devices_of_the_node_are_counted():
    node = NodeInfo("vm", LABELS, NODE.allocatable | {"example.com/gpu": 2})
    one = pod("a", requests={"example.com/gpu": "1"})
    assert judged(pod(requests={"example.com/gpu": "1"}), one, node=node) == OK
    assert judged(pod(requests={"example.com/gpu": "2"}), one, node=node) == short("example.com/gpu", 2, 1, 2)


CLASS = "deviceclass.resource.kubernetes.io/gpu"


def claiming(*names: str, container: str = "c", **fields: Any) -> Pod:
    """A pod with a claim for these extended resources of a container."""
    mappings = [{"containerName": container, "resourceName": name, "requestName": "r"} for name in names]
    status = {"resourceClaimName": "made", "requestMappings": mappings}
    one = pod(**fields)
    return msgspec.structs.replace(one, status=msgspec.convert({"extendedResourceClaimStatus": status}, PodStatus))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (claiming(CLASS, requests={CLASS: "1"}), OK),
        (pod(requests={CLASS: "1"}), short(CLASS, 1, 0, 0)),
        (claiming(CLASS, container="other", requests={CLASS: "1"}), short(CLASS, 1, 0, 0)),
        (claiming(GONE, requests={GONE: "1"}), OK),
        (claiming(CLASS, requests={GONE: "1"}), short(GONE, 1, 0, 0)),
        (claiming("cpu", requests={"cpu": "3"}), short("cpu", 3000, 0, 2000)),  # no claim stands behind it
        (
            claiming(CLASS, container="i", initContainers=[{"name": "i", "resources": {"requests": {CLASS: "2"}}}]),
            OK,
        ),
    ],
)
def test_what_a_claim_gives_is_not_the_nodes(one: Pod, expected: tuple[str, str]) -> None:
    node = NodeInfo("vm", LABELS, NODE.allocatable | {GONE: 0})
    assert judged(one, node=node) == expected


def test_what_a_claim_gives_takes_nothing_of_the_node() -> None:
    node = NodeInfo("vm", LABELS, NODE.allocatable | {GONE: 1})
    assert judged(pod(requests={GONE: "1"}), claiming(GONE, name="o", requests={GONE: "1"}), node=node) == OK


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"overhead": {"cpu": "1"}}, short("cpu", 2500, 0, 2000)),
        ({"resources": {"requests": {"cpu": "3"}}}, short("cpu", 3000, 0, 2000)),
        ({"resources": {"requests": {"cpu": "1500m"}}}, OK),
        ({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2100m"}}}]}, short("cpu", 2100, 0, 2000)),
        ({"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]},
         short("cpu", 2500, 0, 2000)),
    ],
)  # fmt: skip
def test_what_counts_as_a_request(spec, expected):
    assert judged(pod(requests={"cpu": "1500m"}, **spec)) == expected


@pytest.mark.parametrize(
    ("allocated", "actuated", "held"),
    [
        ({"cpu": "1", "memory": "1Gi"}, None, (1000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1024Mi"}, (1000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "512Mi"}, (2000, GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m", "memory": "3Gi"}, (1000, 3 * GI)),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "2"}, (2000, GI)),
        ({"cpu": "1"}, {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, (1000, GI)),
    ],
)
def test_a_share_holds_the_larger_of_allocated_and_actuated(allocated, actuated, held):
    record = None if actuated is None else resources_of(pod(requests=actuated))
    share = Share.of(pod(requests=allocated), record)
    assert share.requests == Share.of(pod(requests=allocated)).requests
    assert (share.held["cpu"], share.held["memory"]) == held
    assert "example.com/gpu" not in share.held, "a resize changes CPU and memory alone"


def test_a_pods_own_resources_are_held_until_they_are_less():
    def sized(cpu: str) -> Pod:
        return pod(resources={"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, overhead={"cpu": "100m"})

    share = Share.of(sized("1"), resources_of(sized("2")))
    assert (share.requests["cpu"], share.held["cpu"]) == (1100, 2100)
