"""Limits of the cgroups above the pods'."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors._cgroup import fs, tiers
from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.quantities.resources import PodLimits
from actors._host.machine import Machine
from actors.pod_workers.admission import Share
from proto.agent.settings import Settings
from tests.cgroups import make_files
from tests.pod_workers.admission.pods import guaranteed, pod

GI = 1 << 30
MACHINE = Machine(cpus=4, memory_bytes=8 * GI, pids=1000)
MEMORY_QOS = Settings(memory_throttling_factor=0.9)


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ({}, PodLimits(4096, memory_bytes=8 * GI, pids=1000)),
        ({"eviction_hard": {"memory.available": "1Gi"}}, PodLimits(4096, memory_bytes=8 * GI, pids=1000)),
        ({"system_reserved": {"cpu": "1", "memory": "1Gi", "pid": "100"}}, PodLimits(3072, None, None, 7 * GI, 900)),
        ({"system_reserved": {"cpu": "1"}, "enforce_node_allocatable": ()}, PodLimits(4096, None, None, 8 * GI, 1000)),
        ({"kube_reserved": {"cpu": "4"}}, PodLimits(2, memory_bytes=8 * GI, pids=1000)),
    ],
)  # fmt: skip
def test_of_all_pods(written, limits):
    reset = replace(limits, memory_min_bytes=0, memory_low_bytes=0)
    assert tiers.of_all_pods(MACHINE, Settings(**written)) == reset
    assert tiers.of_all_pods(MACHINE, Settings(**written, memory_throttling_factor=0.9)) == limits


@pytest.mark.parametrize(
    ("reservation", "compressible", "limits"),
    [
        ({"cpu": "500m", "memory": "1Gi", "pid": "50"}, False, PodLimits(512, memory_bytes=GI, pids=50)),
        ({"cpu": "500m", "memory": "1Gi", "pid": "50"}, True, PodLimits(512)),
        ({"memory": "1Gi", "ephemeral-storage": "1Gi"}, False, PodLimits(memory_bytes=GI)),
        ({"memory": "1Gi"}, True, PodLimits()),
        ({}, False, PodLimits()),
    ],
)
def test_of_a_reservation(reservation, compressible, limits):
    assert tiers.of_reservation(reservation, Settings(), compressible=compressible) == limits
    protected = replace(limits, memory_min_bytes=limits.memory_bytes)
    assert tiers.of_reservation(reservation, MEMORY_QOS, compressible=compressible) == protected


PODS = [
    Share.of(one)
    for one in (
        pod("b"),
        pod("u", requests={"cpu": "250m", "memory": "1Gi"}),
        pod("v", requests={"cpu": "750m"}),
        guaranteed("g", "1", "2Gi"),
    )
]


@pytest.mark.parametrize(
    ("pods", "percent", "burstable", "best_effort"),
    [
        ([], 0, PodLimits(2), PodLimits(2)),
        (PODS, 0, PodLimits(1024), PodLimits(2)),
        (PODS, 100, PodLimits(1024, memory_bytes=6 * GI), PodLimits(2, memory_bytes=5 * GI)),
        (PODS, 50, PodLimits(1024, memory_bytes=7 * GI), PodLimits(2, memory_bytes=6 * GI + GI // 2)),
        ([Share.of(guaranteed("h", "1", "12Gi"))], 100, PodLimits(2), PodLimits(2)),
    ],
)
def test_of_the_classes(pods, percent, burstable, best_effort):
    settings = Settings(memory_reserved_by_qos_percent=percent)
    reset = replace(burstable, memory_min_bytes=0, memory_low_bytes=0)
    assert tiers.of_classes(pods, 8 * GI, settings) == {"Burstable": reset, "BestEffort": best_effort}


@pytest.mark.parametrize(
    ("there", "wanted", "after"),
    [
        ("7", 0, "0"),
        ("max", 0, "0"),
        ("0", 5, "5"),
        ("7", None, "7"),
        ("0\n", 0, "0\n"),  # the kernel's own zero is not written again
        (None, 0, None),
    ],
)
def test_protection_of_zero_is_written_to_undo_another(monkeypatch, tmp_path, there, wanted, after):
    monkeypatch.setattr(fs, "_delegate", lambda _: None)  # a directory has no controllers
    monkeypatch.setattr(tiers, "huge_page_sizes", lambda: ())
    files = [tmp_path / "kubepods/burstable" / name for name in ("memory.min", "memory.low")]
    make_files(files[0].parent, "cpu.weight", *(file.name for file in files if there is not None))
    for file in files if there is not None else ():
        file.write_text(there)
    limits = PodLimits(2, memory_min_bytes=wanted, memory_low_bytes=wanted)
    tiers.apply("/kubepods/burstable", limits, "cgroupfs", Hierarchy(unified=True, mounts={"": str(tmp_path)}))
    # a plain file keeps its tail where a cgroup's does not
    kept = [file.read_text()[: len(after or "")] if file.exists() else None for file in files]
    assert kept == [after, after]
    assert (tmp_path / "kubepods/burstable/cpu.weight").read_text() == "1"


def test_reserved_cgroup_is_limited_but_never_created(tmp_path):
    tree = Hierarchy(unified=False, mounts={"cpu": str(tmp_path / "cpu"), "memory": str(tmp_path / "memory")})
    make_files(tmp_path / "cpu/system", "cpu.shares")
    make_files(tmp_path / "memory/system", "memory.limit_in_bytes")
    tiers.apply_existing("/system", PodLimits(512, memory_bytes=GI), "cgroupfs", tree)
    assert (tmp_path / "cpu/system/cpu.shares").read_text() == "512"
    assert (tmp_path / "memory/system/memory.limit_in_bytes").read_text() == str(GI)
    with pytest.raises(FileNotFoundError, match=r'\["other"\] cgroup does not exist'):
        tiers.apply_existing("other", PodLimits(512), "cgroupfs", tree)
    assert not (tmp_path / "cpu/other").exists()
