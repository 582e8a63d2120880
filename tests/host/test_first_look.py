"""The first look at the machine in a run of the agent, which its actors share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host import first_look
from actors._host.machine import Machine, read_machine
from actors.resources.machine.topology import Cpu, Topology


@pytest.fixture
def run_of_agent() -> Iterator[int]:
    """A pidfd of the supervisor: this process."""
    descriptor = os.pidfd_open(os.getpid())
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def other_run() -> Iterator[int]:
    """A pidfd of another supervisor."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        descriptor = os.pidfd_open(process.pid)
        yield descriptor
        os.close(descriptor)


def look(amount: int, run_dir: Path, supervisor_pidfd: int) -> Machine:
    """A look at a machine with this many CPUs and bytes."""
    machine = Machine(cpus=amount, memory_bytes=amount, huge_page_bytes={"hugepages-2Mi": amount}, cpu_list="0")
    return first_look.first_look("capacity", lambda: machine, Machine, str(run_dir), supervisor_pidfd)


def test_machine_stays_as_the_first_look_has_it(tmp_path: Path, run_of_agent: int) -> None:
    first = look(1, tmp_path, run_of_agent)
    assert look(2, tmp_path, run_of_agent) == first
    assert first.huge_page_bytes == {"hugepages-2Mi": 1}


def test_each_run_of_the_agent_looks_anew(tmp_path: Path, run_of_agent: int, other_run: int) -> None:
    assert [look(n, tmp_path, run).cpus for n, run in ((1, run_of_agent), (2, other_run), (3, other_run))] == [1, 2, 2]


def test_replay_looks_at_its_own_machine(tmp_path: Path) -> None:
    assert [look(n, tmp_path, -1).cpus for n in (1, 2)] == [1, 2]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{}", "\0" * 90, '{"version":9,"checksum":0,"data":{}}'])
def test_damaged_file_is_replaced(tmp_path: Path, run_of_agent: int, content: str) -> None:
    look(1, tmp_path, run_of_agent)
    Path(tmp_path, "machine/capacity.json").write_text(content)
    assert [look(n, tmp_path, run_of_agent).cpus for n in (2, 3)] == [2, 2]


def test_actors_that_start_together_see_one_machine(tmp_path: Path, run_of_agent: int) -> None:
    """All of them have read the machine before the first one keeps it."""
    together = threading.Barrier(4)
    found: list[int] = []

    def start(amount: int) -> None:
        def read() -> int:
            together.wait(30)
            return amount

        found.append(first_look.first_look("x", read, int, str(tmp_path), run_of_agent))

    threads = [threading.Thread(target=start, args=(amount,)) for amount in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 4


def test_directory_that_cannot_be_written_does_no_harm(
    tmp_path: Path, run_of_agent: int, caplog: pytest.LogCaptureFixture
) -> None:
    Path(tmp_path, "machine").write_text("")
    assert look(1, tmp_path, run_of_agent).cpus == 1
    assert "cannot write" in caplog.text


def test_machine_and_topology_come_back_as_they_were(tmp_path: Path, run_of_agent: int) -> None:
    args = str(tmp_path), run_of_agent
    assert first_look.machine_of_agent("/", *args) == first_look.machine_of_agent("/", *args)
    assert first_look.machine_of_agent("/", *args).memory_bytes == read_machine("/").memory_bytes
    topology = Topology({2: Cpu(core=2, socket=0, node=1, cache=3)}, offline=frozenset({3}))
    assert topology.ids == {2}
    kept = [first_look.first_look("cpus", lambda: topology, Topology, *args) for _ in range(2)]
    assert kept == [topology, topology]
