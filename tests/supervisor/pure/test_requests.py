"""Requests on the control socket that take the supervisor's loop time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from proto.agent.supervisor import ActorRow, ListActors
from proto.common.machine import procfs
from proto.wire.envelope import Header
from supervisor.core import requests
from supervisor.health import memory_sizes
from supervisor.health.memory_sizes import SHARE, MemorySizes
from supervisor.sockets.control import Asker, Received

ACTORS = 20


class Clock:
    """Monotonic time: 0.1 ms between two looks at it, and `takes_s` for the memory of a process."""

    def __init__(self) -> None:
        self.now, self.takes_s = 100.0, 0.001
        self.read: list[int] = []

    def monotonic(self) -> float:
        self.now += 0.0001
        return self.now

    def pss_kib(self, pid: int) -> int:
        self.now += self.takes_s
        self.read.append(pid)
        return len(self.read)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(procfs, "pss_kib", made.pss_kib)
    for module in (requests, memory_sizes):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(requests, "_sizes", MemorySizes())
    return made


class Asked:
    """The parts of a daemon with 20 actors, and askers without end."""

    def __init__(self) -> None:
        row = ActorRow(name="a", pid=1, state="ready", incarnation=1, uptime_s=1, restarts=0)
        rows = [msgspec.structs.replace(row, name=f"a{pid}", pid=pid) for pid in range(1, ACTORS + 1)]
        self.tree: Any = SimpleNamespace(rows=lambda _: rows, stopping=False)
        self.forkserver: Any = SimpleNamespace(pid=0, loaded=False, replaced=False, incarnation=1, restarts=0)
        self.control: Any = self
        self.incarnation, self.started = 1, 0.0
        self.answers: list[Any] = []

    def read(self) -> Iterator[Received]:
        for number in itertools.count():
            header = Header(1, 0, "ListActors", "console", 0, number, 0)
            yield Received(ListActors(), header, Asker(b"x", number, "ListActors"))

    def answer(self, _: Asker, answer: Any) -> None:
        self.answers.append(answer)


def test_many_askers_measure_the_memory_once(clock: Clock) -> None:
    daemon: Any = Asked()
    for _ in range(64):
        assert all(row.pss_kib for row in requests.rows(daemon) if row.pid)
    assert len(clock.read) == len(set(clock.read)) == 1 + ACTORS  # the supervisor itself, too
    clock.now += 1.0
    requests.rows(daemon)
    assert len(clock.read) == 2 * (1 + ACTORS)


def test_memory_of_a_new_process_is_measured_at_once(clock: Clock) -> None:
    sizes = MemorySizes()
    assert sizes.of([1, 2]) == {1: 1, 2: 2}
    assert sizes.of([2, 3]) == {2: 2, 3: 3}


def test_slow_measurements_are_rare(clock: Clock) -> None:
    clock.takes_s = 0.5
    sizes, began = MemorySizes(), clock.now
    while clock.now < began + 1000:
        sizes.of(range(10))
        clock.now += 0.1
    assert len(clock.read) * clock.takes_s <= 1000 * SHARE + 10 * clock.takes_s


def test_serving_returns_to_the_loop_soon(clock: Clock) -> None:
    daemon: Any = Asked()
    for served in (1, 10):  # the first measures
        began, before = clock.now, len(daemon.answers)
        requests.serve(daemon)
        assert len(daemon.answers) - before >= served
        assert clock.now - began < requests.SERVE_S + (1 + ACTORS) * clock.takes_s
