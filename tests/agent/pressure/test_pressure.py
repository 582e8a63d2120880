"""Each eviction signal under real pressure: the right pod goes, the condition comes and goes, nothing else ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.machine import memory_capacity
from actors.stats import measure
from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.pressure.pressing import (
    MIB,
    UNTIL_TOLD,
    asking,
    files,
    has_bytes,
    has_inodes,
    node_reasons,
    press,
    pressed,
    small_disk,
    volume_pod,
    write,
)
from tests.containerd import ContainerdInstance

pytestmark = [pytest.mark.needs("mkfs.ext4", "loop devices"), pytest.mark.timeout(300)]

MARGIN, SHARE = 900, 6
"""Memory for other programs meanwhile, such as tests beside: so many MiB, or one of so many parts of free memory.

Without room for them the pressure would stay once the hog is gone, and another pod would go, too."""
OVER = 636
"""MiB that the hog takes beyond that, and beyond what others may have freed by then."""
BESIDE = (200, 20)
"""MiB of the pods beside the hog: the first one has asked for more, the second one for none."""
TRIES = 4
TASKS = 3000
"""Processes and threads that may start meanwhile without pressure. Those of a hundred pods of tests beside are 1500."""


class FreeMovedError(Exception):
    """Other programs have taken or freed so much memory that the threshold does not fit any more."""


@pytest.fixture(scope="module")
def disks() -> Iterator[ApiSource]:
    """An agent with its root directory on one small disk, and its containerd on another."""
    with tempfile.TemporaryDirectory(prefix="nvpr-") as made:
        directory = Path(made)
        with (
            small_disk(directory / "i.img", directory / "i", 256 * MIB, 16384) as images,
            ContainerdInstance(images / "c") as containerd,
            small_disk(directory / "n.img", directory / "n", 64 * MIB, 4096) as nodefs,
        ):
            hard = {f"{disk}.{what}": "20%" for disk in ("nodefs", "imagefs") for what in ("available", "inodesFree")}
            config = {"evictionHard": hard, "imageGCHighThresholdPercent": 100}

            def prepare(agent: Agent) -> None:
                agent.root_dir = nodefs / "root"

            with pressed(containerd, config, prepare) as api:
                yield api


def test_nodefs_available(disks: ApiSource) -> None:
    beside = (
        volume_pod("within", write("/v/f", 12), **asking("ephemeral-storage", "20Mi")),
        volume_pod("modest", write("/v/f", 2)),
    )
    text = press(disks, "nodefs.available", "DiskPressure", volume_pod("hog", write("/v/f", 40)), beside)
    assert text.startswith("The node was low on resource: ephemeral-storage. Threshold quantity: ")
    reasons = node_reasons(disks.agent)
    assert {"EvictionThresholdMet", "NodeHasDiskPressure"} <= set(reasons)
    assert reasons.index("NodeHasDiskPressure") < len(reasons) - 1 - reasons[::-1].index("NodeHasNoDiskPressure")


def test_nodefs_inodes_free(disks: ApiSource) -> None:
    beside = (volume_pod("few", files("/v/d", 200)),)
    text = press(disks, "nodefs.inodesFree", "DiskPressure", volume_pod("hog", files("/v/d", 3200)), beside)
    assert text.startswith("The node was low on resource: inodes. ")


def test_imagefs_available(disks: ApiSource) -> None:
    beside = (
        pod("within", container("c", f"{write('/f', 20)}; exec sleep 1000", **asking("ephemeral-storage", "30Mi"))),
        volume_pod("elsewhere", write("/v/f", 8)),  # on nodefs
    )
    script = f"{write('/f', 90)}; {UNTIL_TOLD}; {write('/g', 100)}; exec sleep 1000"
    hog = pod("hog", container("c", script))
    text = press(disks, "imagefs.available", "DiskPressure", hog, beside, measured=has_bytes(90))
    assert text.startswith("The node was low on resource: ephemeral-storage. ")
    assert "Container c was using" in text


def test_imagefs_inodes_free(disks: ApiSource) -> None:
    beside = (pod("few", container("c", f"{files('/d', 300)}; exec sleep 1000")),)
    script = f"{files('/d', 6000)}; {UNTIL_TOLD}; {files('/e', 7500)}; exec sleep 1000"
    hog = pod("hog", container("c", script))
    text = press(disks, "imagefs.inodesFree", "DiskPressure", hog, beside, measured=has_inodes(6000))
    assert text.startswith("The node was low on resource: inodes. ")


def free_mib() -> int:
    capacity, used = measure.memory()
    return (capacity - used) // MIB


def test_memory_available(containerd: ContainerdInstance) -> None:
    for number in range(TRIES):
        try:
            text = press_memory(containerd)
        except FreeMovedError:
            assert number < TRIES - 1, "other programs take and free memory all the time"
        else:
            break
    assert text.startswith("The node was low on resource: memory. ")
    assert "Container c was using" in text


def press_memory(containerd: ContainerdInstance) -> str:
    """Press with the memory that is free now; return the hog's message. Raises FreeMovedError."""
    free = free_mib()
    margin = max(MARGIN, free // SHARE)
    moved = margin // 3  # what others may have taken or freed by the time of the hog
    taken = margin + moved + OVER
    if free < taken + 1024:
        pytest.skip(f"needs {taken + 1024} MiB of free memory")
    config = {
        "evictionHard": {"memory.available": f"{free - margin}Mi"},
        "enforceNodeAllocatable": [],
    }
    beside = (
        volume_pod("within", write("/v/f", BESIDE[0]), "Memory", **asking("memory", "300Mi")),
        volume_pod("modest", write("/v/f", BESIDE[1]), "Memory"),
    )

    def check_free() -> None:
        if abs(free - sum(BESIDE) - free_mib()) > moved:
            raise FreeMovedError

    with pressed(containerd, config) as api:
        hog = volume_pod("hog", write("/v/f", taken), "Memory")
        return press(api, "memory.available", "MemoryPressure", hog, beside, before_hog=check_free)


def test_allocatable_memory_available(containerd: ContainerdInstance) -> None:
    """All pods together have 600 MiB; the node itself has enough."""
    reserved = memory_capacity() // MIB - 600
    config = {"evictionHard": {"memory.available": "100Mi"}, "systemReserved": {"memory": f"{reserved}Mi"}}
    beside = (
        volume_pod("within", write("/v/f", 80), "Memory", **asking("memory", "100Mi")),
        volume_pod("modest", write("/v/f", 20), "Memory"),
    )
    with pressed(containerd, config) as api:
        hog = volume_pod("hog", write("/v/f", 430), "Memory")
        text = press(api, "allocatableMemory.available", "MemoryPressure", hog, beside)
    assert text.startswith("The node was low on resource: memory. Threshold quantity: 100Mi, ")


def test_pid_available(containerd: ContainerdInstance) -> None:
    most, running = measure.processes()
    config = {"evictionHard": {"pid.available": str(most - running - TASKS)}, "podPidsLimit": 3 * TASKS}
    bomb = "i=0; while [ $i -lt {} ]; do sleep 1000 & i=$((i+1)); done; wait"
    with pressed(containerd, config) as api:
        beside = (pod("few", container("c", bomb.format(50))),)
        hog = pod("hog", container("c", bomb.format(2 * TASKS)))
        text = press(api, "pid.available", "PIDPressure", hog, beside)
    assert text.startswith("The node was low on resource: pids. ")
