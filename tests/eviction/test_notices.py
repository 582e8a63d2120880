"""Notices of short memory wake the actor: memory events, stalls and the kernel's thresholds."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import hierarchy
from proto.agent.actor import Describe
from proto.node.stats import GetNodeStats, NodeStats
from tests.eviction.fake_node import GIB, FakeNode
from tests.harness import wait_for

UNIFIED = """
import actors.eviction.actor as module
from actors._cgroup.hierarchy import Hierarchy
from actors.eviction import notification
module.hierarchy = lambda: Hierarchy(unified=True, mounts={{"": {root!r}}})
notification.MACHINE_STALLS = {stalls!r}
"""


def unified(root: Path, stalls: str, prelude: str = "") -> FakeNode:
    """A node whose eviction sees cgroup v2 in `root`, and looks by itself once an hour."""
    (root / "pods/kubepods").mkdir(parents=True)
    fake = FakeNode(
        prelude=UNIFIED.format(root=str(root), stalls=stalls) + prelude,
        eviction_monitoring_period_s=3600.0,
        cgroup_root="/pods",
        local_storage_capacity_isolation=False,
    )
    fake.memory_available = 16 * GIB
    return fake


def test_memory_events_of_the_pods_wake_the_actor(tmp_path: Path) -> None:
    fake = unified(tmp_path, str(tmp_path / "none"))
    events = tmp_path / "pods/kubepods/memory.events"
    events.write_text("low 0\nhigh 0\nmax 0\noom 0\n")
    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [str(events)], 10, "it watches")
        for number, available in enumerate((0, 16 * GIB, 0)):  # a second notice is heard, too
            fake.memory_available = available
            events.write_text(f"low 0\nhigh 0\nmax {number + 1}\noom 0\n")
            wait_for(lambda low=available == 0: fake.pressure().signals[0].met == low, 10, "a look before its period")
        events.unlink()
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [], 10, "it stops to watch")


MARKS_NOTICES = """
inner = module.ACTOR._look_at_once

def look(self, path, goes_on):
    inner(self, path, goes_on)
    with open({marks!r}, "a") as file:
        file.write("x")

module.ACTOR._look_at_once = look
"""


def test_notice_during_a_look_makes_another(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.touch()
    fake = unified(tmp_path, str(tmp_path / "none"), MARKS_NOTICES.format(marks=str(marks)))
    events = tmp_path / "pods/kubepods/memory.events"
    events.write_text("low 0\nhigh 0\nmax 0\noom 0\n")

    def count(number: int) -> None:
        with events.open("r+") as file:  # not emptied before: that would be a notice of its own
            file.write(f"low 0\nhigh 0\nmax {number}\noom 0\n")

    asked, gate = threading.Event(), threading.Event()

    def held(request: GetNodeStats) -> NodeStats:
        figures = fake.node(request)
        asked.set()
        gate.wait(30)
        return figures

    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [str(events)], 10, "it watches")
        fake.actor.peers["stats"].answers[GetNodeStats] = held
        count(1)
        assert asked.wait(20), "a look has its figures"
        fake.memory_available = 0
        count(2)
        wait_for(lambda: marks.read_text() == "xx", 20, "the second notice has come")
        gate.set()
        wait_for(lambda: fake.pressure().signals[0].met, 20, "another look follows")
    ages = [one.max_age_s for one in fake.actor.peers["stats"].of(GetNodeStats)]
    assert ages[1:3] == [0.0, 0.0], "stats would answer with figures from before a notice"


STALLS = "/proc/pressure/memory"


@pytest.mark.needs("root", "cgroups")
@pytest.mark.skipif(not os.access(STALLS, os.W_OK), reason="the kernel counts no stalls")
def test_stalls_of_the_machine_wake_the_actor(tmp_path: Path) -> None:
    fake = unified(tmp_path, STALLS)
    with fake.actor:
        wait_for(lambda: fake.actor.ask(Describe()).state["notices"] == [STALLS], 10, "it watches")
        wait_for(lambda: fake.pressure().signals, 10, "the first look")
        fake.memory_available = 0
        with limited_memory(64 << 20) as procs:
            hog = subprocess.Popen([sys.executable, "-c", THRASH, procs, str(tmp_path / "file")])
            try:
                wait_for(lambda: fake.told()[-1:] == [("MemoryPressure",)], 30, "a look before its period")
            finally:
                hog.kill()
                hog.wait()


THRASH = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
with open(sys.argv[2], "wb") as file:
    file.truncate(0)
    for _ in range(160):
        file.write(os.urandom(1 << 20))
while True:
    with open(sys.argv[2], "rb") as file:
        while file.read(1 << 20):
            pass
"""


@contextmanager
def limited_memory(most: int) -> Iterator[str]:
    """Yield the file of processes of a new cgroup with so many bytes."""
    with memory_cgroup() as where:
        (where / ("memory.max" if hierarchy().unified else "memory.limit_in_bytes")).write_text(str(most))
        yield str(where / "cgroup.procs")


@contextmanager
def memory_cgroup() -> Iterator[Path]:
    """Yield a new cgroup of the memory controller."""
    where = Path(hierarchy().path("memory", f"/nvtest-{os.getpid()}") or "")
    where.mkdir()
    try:
        yield where
    finally:
        wait_for(lambda: not (where / "cgroup.procs").read_text(), 10, "its processes have ended")
        where.rmdir()


@pytest.mark.needs("root", "cgroups")
@pytest.mark.skipif(hierarchy().unified, reason="cgroup v2 has no such notices")
def test_notice_of_the_kernel_wakes_the_actor() -> None:
    """The machine's memory is that of a cgroup: the usage of everything else may rise and fall as it likes."""
    with memory_cgroup() as where:
        fake = only_sees(where)
        with fake.actor:
            wait_for(lambda: fake.pressure().signals, 10, "the first look")
            fake.memory_available = 0
            hog = subprocess.Popen([sys.executable, "-c", RISES_AND_FALLS, str(where / "cgroup.procs")])
            try:
                wait_for(lambda: fake.told()[-1:] == [("MemoryPressure",)], 20, "a look before its period")
            finally:
                hog.kill()
                hog.wait()


RISES_AND_FALLS = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    data = b"x" * (768 << 20)
    del data
"""
V1 = """
import actors.eviction.actor as module
from actors._cgroup.hierarchy import Hierarchy
module.hierarchy = lambda: Hierarchy(unified=False, mounts={{"memory": {where!r}}})
"""


def only_sees(where: Path) -> FakeNode:
    """A node with the memory cgroup `where` as its root, for which 256 MiB in use are too much."""
    fake = FakeNode(
        prelude=V1.format(where=str(where)),
        kernel_memcg_notification=True,
        eviction_monitoring_period_s=3600.0,
        eviction_hard={"memory.available": str(16 * GIB - (256 << 20))},
        local_storage_capacity_isolation=False,
    )
    fake.memory_available = 16 * GIB
    return fake
