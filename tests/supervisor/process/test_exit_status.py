"""Exit statuses that come late, or never: how long they are awaited, and what the state machine does meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
import zmq

from proto.agent.supervisor import Exited
from proto.common.machine import procfs
from supervisor.process.processes import STATUS_WAIT_S, Process, Processes
from supervisor.supervision import transitions
from supervisor.supervision.process_tree import KILL_WAIT_S
from tests.supervisor.agent import Agent, spec
from tests.supervisor.supervision.pure.test_tree import Driver, of


@pytest.fixture
def ended() -> Iterator[tuple[Processes, Process, subprocess.Popen[bytes]]]:
    """A child of this test that has ended, is not reaped, and is noted as gone."""
    with subprocess.Popen(["/bin/true"]) as child:
        pidfd = os.pidfd_open(child.pid)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        processes = Processes(zmq.Context.instance(), zmq.Poller(), "/nowhere")
        process = processes.add("a", 1, child.pid, pidfd)
        processes.mark_gone(process, time.monotonic())
        yield processes, process, child
        processes.remove(process)


def test_status_is_awaited_for_less_than_a_kill(
    ended: tuple[Processes, Process, subprocess.Popen[bytes]],
) -> None:
    processes, process, _ = ended
    assert process.gone_at is not None
    assert 1.5 < STATUS_WAIT_S < KILL_WAIT_S, "a busy machine keeps the forkserver from its turn for a second"
    assert processes.without_status(process.gone_at + 1.5) == []
    assert processes.without_status(process.gone_at + STATUS_WAIT_S) == [process]
    assert list(processes.deadlines()) == [process.gone_at + STATUS_WAIT_S]


def test_only_a_reaped_process_has_no_status_to_come(
    ended: tuple[Processes, Process, subprocess.Popen[bytes]],
) -> None:
    processes, process, child = ended
    assert processes.reaped() == [], "who adopts it gets its status"
    child.wait()
    assert processes.reaped() == [process]


@pytest.mark.parametrize("state", ["starting", "ready", "stopping", "killed"])
def test_ended_process_misses_no_deadline_until_its_status_comes(state: str) -> None:
    driver = Driver(spec("good_a", heartbeat_period_s=0.2, heartbeat_deadline_s=0.5, start_deadline_s=0.5))
    name = "good_a"
    driver(transitions.Boot())
    driver(transitions.Forked(name, 1, 7))
    if state != "starting":
        driver(transitions.ReadyReceived(name, 1, 7))
    if state in ("stopping", "killed"):
        driver(transitions.RestartAsked(name, None))
    if state == "killed":
        assert of(transitions.Kill, driver.tick(driver.tree.children[name].spec.shutdown_s))
        driver.tick(KILL_WAIT_S - 0.1)
    driver(transitions.Gone(name, 1))
    for _ in range(3):
        assert driver.tick(STATUS_WAIT_S / 3) == []
    (exited,) = of(Exited, driver(transitions.Ended(name, 1, signal.SIGKILL)))
    assert exited.reason == "killed by SIGKILL"
    assert driver.tree.lost == []


def test_status_of_an_orphan_comes_to_the_supervisor() -> None:
    """The forkserver is killed before it can reap: the child becomes the supervisor's."""
    with Agent(spec("good_a")) as agent:
        before, forkserver = agent.wait_ready("good_a")["good_a"], agent.row("forkserver").pid
        os.kill(forkserver, signal.SIGSTOP)
        os.kill(before.pid, signal.SIGKILL)
        os.kill(forkserver, signal.SIGKILL)
        after = agent.wait_ready("good_a", incarnation=2)["good_a"]
        assert after.last_death == "killed by SIGKILL"
        assert procfs.start_time(before.pid) == 0
