"""A node's allocatable resources are its capacity without reservations and eviction thresholds, as in the kubelet."""

from __future__ import annotations

import pytest

from actors._cgroup.quantities.allocatable import allocatable, enforced
from actors._host.machine import Machine
from actors._host.node.downward import default_limits
from actors.pod_workers.admission import node_info
from proto.agent.settings import Settings
from tests.pod_workers.admission.pods import GI, MACHINE


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {"cpu": 4000, "memory": 8 * GI - 100 * 2**20, "pods": 110, "hugepages-2Mi": 0}),
        ({"eviction_hard": {}}, {"cpu": 4000, "memory": 8 * GI, "ephemeral-storage": 100 * GI}),
        ({"eviction_hard": {"memory.available": "25%"}}, {"memory": 6 * GI}),
        ({"eviction_hard": {"memory.available": "100%", "nodefs.available": "0%"}}, {"memory": 8 * GI}),
        ({"eviction_hard": {"nodefs.available": "30Gi"}}, {"ephemeral-storage": 70 * GI, "memory": 8 * GI}),
        ({"system_reserved": {"cpu": "500m"}, "kube_reserved": {"cpu": "1", "memory": "1Gi"}, "eviction_hard": {}},
         {"cpu": 2500, "memory": 7 * GI}),
        ({"system_reserved": {"memory": "9Gi"}}, {"memory": 0}),
        ({"kube_reserved": {"ephemeral-storage": "50Gi"}, "eviction_hard": {}}, {"ephemeral-storage": 50 * GI}),
        ({"max_pods": 7}, {"pods": 7}),
        ({"eviction_hard": {"memory.available": "1Gi"}, "allocatable_ignores_eviction": True}, {"memory": 8 * GI}),
    ],
)  # fmt: skip
def test_allocatable(written, expected):
    found = allocatable(MACHINE, Settings(**written))
    assert {name: found[name] for name in expected} == expected


def test_without_isolation_local_storage_is_no_resource():
    settings = Settings(local_storage_capacity_isolation=False, kube_reserved={"ephemeral-storage": "1Gi"})
    assert "ephemeral-storage" not in allocatable(MACHINE, settings)
    assert default_limits(allocatable(MACHINE, settings))["ephemeral-storage"] == 0
    assert allocatable(MACHINE, settings)["memory"] == allocatable(MACHINE, Settings())["memory"]


def test_a_percentage_is_rounded_as_the_kubelet_does():
    machine = Machine(cpus=2, memory_bytes=24684092 * 1024, root_fs_bytes=264212084 * 1024)
    found = allocatable(machine, Settings(eviction_hard={"memory.available": "100Mi", "nodefs.available": "1%"}))
    assert (found["memory"], found["ephemeral-storage"]) == (24581692 * 1024, 267847642337)


def test_huge_pages_and_eviction_threshold_in_allocatable():
    machine = Machine(cpus=1, memory_bytes=8 * GI, huge_page_bytes={"hugepages-1Gi": 2 * GI}, pids=1000)
    settings = Settings(system_reserved={"memory": "1Gi", "pid": "100"}, eviction_hard={"memory.available": "1Gi"})
    assert allocatable(machine, settings)["memory"] == 4 * GI
    assert allocatable(machine, settings)["hugepages-1Gi"] == 2 * GI
    # The limit of all pods includes huge pages, as in the kubelet.
    assert (enforced(machine, settings)["memory"], enforced(machine, settings)["pid"]) == (7 * GI, 900)


def test_a_resize_may_reach_the_eviction_threshold_of_the_node():
    settings = Settings(node_name="vm", eviction_hard={"memory.available": "100Mi"}, kube_reserved={"memory": "1Gi"})
    node = node_info(settings, MACHINE)
    assert (node.enforced["memory"], node.enforced["cpu"]) == (7 * GI, 4000)
    assert node.allocatable["memory"] == 7 * GI - (100 << 20)
