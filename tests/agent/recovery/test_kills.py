"""Processes of the agent die, hang and stop while pods come and go."""

from __future__ import annotations

import os
import signal
import time

import pytest
import yaml

from proto.agent.supervisor import ActorRow
from tests.agent.agent import Agent, pod
from tests.agent.faults import MIXED, Eye, create, expect_mixed, expect_nothing, killing, remove_all
from tests.harness import PATIENCE, wait_for

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(400)]

KILLED = ("pod_workers", "pleg", "status", "volume", "image_pull", "probe", "config")
STOPPED_WITHIN_S = 15.0
"""Of the whole agent, beside other tests. One actor has 5 s, and the log names an actor that needs longer."""
HEARTBEAT = {"defaults": {"heartbeat_period_s": 1.0, "heartbeat_deadline_s": 3.0}}


def prepare(agent: Agent) -> None:
    """Set heartbeats short enough for a test and long enough for a busy machine."""
    (agent.dir / "supervisor.yaml").write_text(yaml.safe_dump(HEARTBEAT))


def flags(agent: Agent) -> tuple[str, ...]:
    return "--supervisor-config", str(agent.dir / "supervisor.yaml")


def restart_supervisor(eye: Eye) -> None:
    eye.agent.start(*flags(eye.agent))


@pytest.mark.parametrize("name", KILLED)
def test_an_actor_killed_at_random_while_pods_come_and_go(eye, name):
    seed = KILLED.index(name)
    with killing(eye, [name], seed) as killed:
        create(eye)
        wait_for(lambda: len(killed) == 3, 30, "killed thrice")
    expect_mixed(eye, 90)
    with killing(eye, [name], seed + 100) as killed:
        remove_all(eye)
        wait_for(lambda: len(killed) == 3, 30, "killed thrice")
    expect_nothing(eye, 60)


def test_the_forkserver_killed_and_then_actors(eye):
    create(eye)
    before = eye.actors()
    os.kill(before["forkserver"].pid, signal.SIGKILL)
    eye.agent.kill_actors("pod_workers", "pleg")
    wait_for(eye.all_ready, 30, "the forkserver, too")
    expect_mixed(eye, 90)
    remove_all(eye)
    expect_nothing(eye, 60)


@pytest.mark.parametrize("after_s", [0.1, 0.5])
def test_the_supervisor_killed_while_pods_start_and_stop(eye, after_s):
    create(eye)
    time.sleep(after_s)
    eye.agent.kill()
    restart_supervisor(eye)
    expect_mixed(eye, 90)
    remove_all(eye)
    time.sleep(after_s)
    eye.agent.kill()
    restart_supervisor(eye)
    expect_nothing(eye, 60)


def test_sigterm_while_pods_start(eye):
    create(eye)
    time.sleep(0.4)
    logged, began = len(eye.agent.log.read_text()), time.monotonic()
    assert eye.agent.stop() == 0
    assert time.monotonic() - began < STOPPED_WITHIN_S * PATIENCE
    assert "did not stop within" not in eye.agent.log.read_text()[logged:], "each actor ends by itself"
    restart_supervisor(eye)
    expect_mixed(eye, 90)


def test_a_supervisor_that_stands_still_is_missed_by_nobody(eye):
    before = {name: row.incarnation for name, row in eye.actors().items()}
    assert eye.agent.process is not None
    eye.agent.process.send_signal(signal.SIGSTOP)
    try:
        create(eye)
        time.sleep(4)  # longer than the heartbeat's deadline
        wait_for(lambda: len(eye.agent.running()) >= len(MIXED), 30, "pods start without it")
    finally:
        eye.agent.process.send_signal(signal.SIGCONT)
    expect_mixed(eye, 90)
    time.sleep(2)
    assert {name: row.incarnation for name, row in wait_for(eye.actors, 10).items()} == before


@pytest.mark.parametrize("name", ["probe", "pod_workers"])
def test_a_hung_actor_is_replaced_with_evidence_and_pods_go_on(eye, name):
    for one in ("a", "b"):
        eye.agent.write(one, pod(one))
    wait_for(lambda: eye.ready("a", "b"), 30, "running")
    running, before = eye.agent.running(), eye.actors()[name]
    eye.signal(name, signal.SIGSTOP)

    def replaced() -> ActorRow | None:
        row = eye.actors().get(name)
        return row if row is not None and row.state == "ready" and row.incarnation > before.incarnation else None

    row = wait_for(replaced, 30, "replaced")
    assert "stopped by a signal" in row.last_death
    evidence = row.last_death.partition("(evidence ")[2].rstrip(")")
    assert os.path.getsize(evidence) > 100
    eye.agent.write("c", pod("c"))
    wait_for(lambda: eye.ready("a", "b", "c"), 30, "another one runs")
    assert running.items() <= eye.agent.running().items()
    assert eye.restarts() == {}
