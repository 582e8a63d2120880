"""The CSINode as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from actors.objects.csi_node import MIGRATED_ANNOTATION, same, wanted
from proto.pods.objects import CsiDriver

DRIVER = CsiDriver(name="d.example", node_id="n", max_volumes=0, topology={})


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({}, None),
        ({MIGRATED_ANNOTATION: "kubernetes.io/aws-ebs,kubernetes.io/cinder"}, None),
        ({MIGRATED_ANNOTATION: "kubernetes.io/aws-ebs", "other": "x"}, {"other": "x"}),
    ],
)
def test_no_plugin_is_announced_whose_volumes_are_refused(
    annotations: dict[str, str], kept: dict[str, str] | None
) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "u"}
    existing: dict[str, Any] = {
        "metadata": {"name": "node", "ownerReferences": [owner]}
        | ({"annotations": annotations} if annotations else {}),
        "spec": {"drivers": []},
    }
    for before in (None, existing):
        wish = wanted("node", "u", before, (DRIVER,), all_=True)
        assert wish["metadata"].get("annotations") == (kept if before is not None else None)
    without_drivers = wanted("node", "u", existing, (), all_=True)
    assert same(without_drivers, existing) is (MIGRATED_ANNOTATION not in annotations)


def test_driver_is_announced_with_topology_and_limit() -> None:
    driver = CsiDriver(name="d.example", node_id="n", max_volumes=3, topology={"zone": "z", "rack": "r"})
    (entry,) = wanted("node", "u", None, (driver,), all_=True)["spec"]["drivers"]
    assert entry == {
        "name": "d.example",
        "nodeID": "n",
        "topologyKeys": ["rack", "zone"],
        "allocatable": {"count": 3},
    }
