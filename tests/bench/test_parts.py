"""The parts of `make bench` that a user waits for minutes, in their shortest form."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from tests.bench import cluster
from tests.bench.harness.agent import Agent
from tests.bench.harness.null_runtime import null_runtime
from tests.bench.measurements import idle, restarts, service, streams
from tests.containerd import ContainerdInstance

LONGEST_PERIOD_S = 10.0
"""Seconds in which an agent without pods wakes at least once. Its longest sleep between two looks was 4.8 s."""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path, because sockets below it have at most 107 bytes for theirs."""
    with tempfile.TemporaryDirectory(prefix="nvb-") as name:
        yield Path(name)


def test_each_actor_is_back_in_service_quiet_and_under_load(directory: Path) -> None:
    with null_runtime(directory) as cri, Agent(cri.endpoint, directory) as agent:
        names = {row.name for row in agent.client.actors()[2:]}
        found = restarts.measure(agent, 1, 1)
    assert found.quiet_ms.keys() == found.loaded_ms.keys() == names
    assert all(times != [None] for times in (*found.quiet_ms.values(), *found.loaded_ms.values()))
    assert len(found.bare.seen_ms) == len(found.bare_loaded.forked_ms) == restarts.BARE


def test_calls_are_reads_and_writes_where_perf_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    reader = "while True: open('/proc/self/stat').read(); time.sleep(0.01)"
    with subprocess.Popen([sys.executable, "-c", f"import time\n{reader}"]) as process:
        try:
            found = idle.measure(process.pid, 0.5)
        finally:
            process.kill()
    assert found.calls == idle.READS_AND_WRITES
    assert found.calls_per_s > 10
    assert found.wakeups_per_s > 10


def test_a_takeover_touches_no_container(containerd: ContainerdInstance) -> None:
    found = service.measure_on(containerd.cri, 3, LONGEST_PERIOD_S)
    assert 0 < found.in_service_s < found.first_pod_s
    assert found.pss_mb > 10
    assert (found.pods, found.containers_touched) == (3, 0)
    assert found.idle.wakeups_per_s > 0
    assert found.idle.calls_per_s > 0
    assert found.idle.calls in (idle.SYSTEM_CALLS, idle.READS_AND_WRITES)


def test_streams_go_through_the_agent_and_past_it(containerd: ContainerdInstance) -> None:
    (found,) = streams.measure_on(containerd, 1, 1, 2)
    assert all(value > 0 for value in astuple(found))


def test_a_config_map_changes_its_file(own_control_plane: None, containerd: ContainerdInstance) -> None:
    (found,) = cluster.measure_on(containerd, 1, [1], 2)
    assert [step.pods for step in found.steps] == [1]
    assert len(found.file_ms) == len(found.watch_ms) == 2
    assert max(found.file_ms + found.watch_ms) < 60_000
