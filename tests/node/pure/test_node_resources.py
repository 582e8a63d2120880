"""The Node's capacity and allocatable beside the machine's own."""

from __future__ import annotations

from typing import Any

import pytest

from actors.node.node_resources import Resources, patch_of, reset_patch, resources
from proto.node.node import SetDevices

MACHINE = Resources({"cpu": "4", "pods": "110"}, {"cpu": "3", "pods": "110"})
GPU, DONGLE = "vendor.test/gpu", "admin.test/dongle"
NONE = SetDevices(capacity={}, allocatable={})
GPUS = SetDevices(capacity={GPU: 2}, allocatable={GPU: 1})


def stored(capacity: dict[str, str], allocatable: dict[str, str]) -> dict[str, Any]:
    return {"capacity": {**MACHINE.capacity, **capacity}, "allocatable": {**MACHINE.allocatable, **allocatable}}


@pytest.mark.parametrize(
    ("capacity", "allocatable", "devices", "wanted"),
    [
        ({}, {}, NONE, ({}, {})),
        ({DONGLE: "4"}, {}, NONE, ({DONGLE: "4"}, {DONGLE: "4"})),
        ({DONGLE: "1k"}, {DONGLE: "4"}, GPUS, ({DONGLE: "1k", GPU: "2"}, {DONGLE: "1k", GPU: "1"})),
        ({GPU: "8"}, {GPU: "8"}, GPUS, ({GPU: "2"}, {GPU: "1"})),
        ({}, {DONGLE: "4"}, NONE, ({}, {})),
        ({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}, NONE, ({}, {})),
        # Not told: the resources may be of plugins. Those of the Node are repeated.
        ({GPU: "2", DONGLE: "4"}, {GPU: "1"}, None, ({GPU: "2", DONGLE: "4"}, {GPU: "1", DONGLE: "4"})),
    ],
)
def test_capacity_that_an_administrator_set_is_allocatable(
    capacity: dict[str, str],
    allocatable: dict[str, str],
    devices: SetDevices | None,
    wanted: tuple[dict[str, str], dict[str, str]],
) -> None:
    found = resources(MACHINE, stored(capacity, allocatable), devices)
    assert found == Resources({**MACHINE.capacity, **wanted[0]}, {**MACHINE.allocatable, **wanted[1]})


def test_no_plugin_replaces_a_resource_of_the_machine() -> None:
    devices = SetDevices(capacity={"cpu": 99}, allocatable={"cpu": 99})
    assert resources(MACHINE, {}, devices) == MACHINE


def test_patch_leaves_stored_capacity_and_removes_what_is_gone() -> None:
    before = stored({DONGLE: "4", "hugepages-2Mi": "4Mi"}, {GPU: "1", "hugepages-2Mi": "4Mi", "batch": "7"})
    found = patch_of(resources(MACHINE, before, NONE), before)
    assert found == {
        "capacity": {"hugepages-2Mi": None},
        "allocatable": {**MACHINE.allocatable, DONGLE: "4", GPU: None, "hugepages-2Mi": None},
    }
    assert patch_of(MACHINE, {})["capacity"] == MACHINE.capacity


def test_node_of_a_replaced_machine_has_no_extended_resources() -> None:
    assert reset_patch(stored({GPU: "8", "kubernetes.io/own": "1"}, {GPU: "8"})) == {
        "status": {"capacity": {GPU: "0"}, "allocatable": {GPU: "0"}}
    }
    assert reset_patch(stored({}, {GPU: "8"})) is None
