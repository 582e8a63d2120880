"""The CSINode as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from actors.objects.csi_node import MIGRATED_ANNOTATION, NODE_ID_ANNOTATION, node_patch, same, wanted
from actors.volume import policy
from proto.pods.objects import CsiDriver
from proto.v1.volumes.migrated import MIGRATED

DRIVER = CsiDriver(name="d.example", node_id="n", max_volumes=0, topology={})


ALL = (
    "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,"
    "kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {MIGRATED_ANNOTATION: ALL}),
        ({MIGRATED_ANNOTATION: "kubernetes.io/aws-ebs,kubernetes.io/rbd"}, {MIGRATED_ANNOTATION: ALL}),
        ({MIGRATED_ANNOTATION: ALL, "other": "x"}, {MIGRATED_ANNOTATION: ALL, "other": "x"}),
    ],
)
def test_exactly_the_migrated_plugins_are_announced(annotations: dict[str, str], expected: dict[str, str]) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "u"}
    existing: dict[str, Any] = {
        "metadata": {"name": "node", "ownerReferences": [owner]}
        | ({"annotations": annotations} if annotations else {}),
        "spec": {"drivers": []},
    }
    assert wanted("node", "u", None, (DRIVER,), all_=True)["metadata"]["annotations"] == {MIGRATED_ANNOTATION: ALL}
    without_drivers = wanted("node", "u", existing, (), all_=True)
    assert without_drivers["metadata"]["annotations"] == expected
    assert same(without_drivers, existing) is (annotations == expected)


def test_every_announced_plugin_has_a_volume_plugin() -> None:
    announced = {one.plugin for source, one in MIGRATED.items() if source in policy.PLUGINS}
    assert announced == set(ALL.split(","))


def test_driver_is_announced_with_topology_and_limit() -> None:
    driver = CsiDriver(name="d.example", node_id="n", max_volumes=3, topology={"zone": "z", "rack": "r"})
    (entry,) = wanted("node", "u", None, (driver,), all_=True)["spec"]["drivers"]
    assert entry == {
        "name": "d.example",
        "nodeID": "n",
        "topologyKeys": ["rack", "zone"],
        "allocatable": {"count": 3},
    }


def test_entries_of_drivers_that_are_left_stay() -> None:
    entries = [{"name": name, "nodeID": "old"} for name in ("gone", "left")]
    found = wanted("node", "u", {"metadata": {}, "spec": {"drivers": entries}}, (DRIVER,), all_=True, left={"left"})
    assert [one["name"] for one in found["spec"]["drivers"]] == ["d.example", "left"]
    node = {"metadata": {"annotations": {NODE_ID_ANNOTATION: '{"gone":"old","left":"old"}'}}}
    patch, _ = node_patch(node, (DRIVER,), all_=True, left={"left"})
    assert patch == {"metadata": {"annotations": {NODE_ID_ANNOTATION: '{"d.example":"n","left":"old"}'}}}
