"""Containers that fail: back-off, restart policies, probes. And an agent that dies in between."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.agent.agent import SLEEP, Agent, container, pod
from tests.agent.faults import Eye, condition, expect_nothing, remove_all
from tests.harness import wait_for

pytestmark = [pytest.mark.containerd, pytest.mark.usefixtures("clean")]

SHARED = {"volumeMounts": [{"name": "shared", "mountPath": "/s"}]}
QUICK = {"periodSeconds": 1, "failureThreshold": 1}


def shared(agent: Agent) -> dict:
    """A directory of the host, to see into a container and to steer it."""
    return {"volumes": [{"name": "shared", "hostPath": {"path": str(agent.dir / "shared")}}]}


KEPT = frozenset({"loop"})


def prepare(agent: Agent) -> None:
    """With a pod that crashes from the start: its back-off takes as long as all else here."""
    (agent.dir / "shared").mkdir()
    script = "cut -d' ' -f1 /proc/uptime >> /s/starts; exit 3"
    agent.write("loop", pod("loop", container("c", script, **SHARED), **shared(agent)))


def flag(eye: Eye, name: str) -> Path:
    return eye.agent.dir / "shared" / name


def test_a_failing_liveness_probe_restarts_its_container_alone(eye):
    probe = {"exec": {"command": ["test", "!", "-e", "/s/dead"]}, **QUICK}
    script = "rm -f /s/dead; " + SLEEP
    eye.agent.write("live", pod("live", container("c", script, livenessProbe=probe, **SHARED), container("d"),
                                **shared(eye.agent)))  # fmt: skip
    wait_for(lambda: condition_of(eye, "live", "Ready") == "True", 15, "ready")
    flag(eye, "dead").touch()
    wait_for(lambda: eye.container("live").restart_count == 1, 10, "restarted")
    wait_for(lambda: condition_of(eye, "live", "Ready") == "True", 10, "ready again")
    last = eye.container("live").last_state.terminated
    assert (last.exit_code, last.reason) == (143, "Error")  # its shell leaves at SIGTERM
    assert eye.container("live", "d").restart_count == 0
    time.sleep(1.5)
    assert eye.container("live").restart_count == 1


def condition_of(eye: Eye, name: str, kind: str) -> str:
    found = eye.pods().get(name)
    return condition(found, kind) if found is not None else ""


def test_readiness_goes_and_comes_without_a_restart(eye):
    probe = {"exec": {"command": ["test", "-e", "/s/open"]}, **QUICK}
    flag(eye, "open").touch()
    eye.agent.write("door", pod("door", container("c", readinessProbe=probe, **SHARED), **shared(eye.agent)))
    for wanted in ("True", "False", "True"):
        wait_for(lambda wanted=wanted: condition_of(eye, "door", "Ready") == wanted, 10, f"Ready {wanted}")
        assert eye.container("door").ready == (wanted == "True")
        if wanted == "True":
            flag(eye, "open").unlink()
        else:
            eye.signal("probe")
            time.sleep(0.5)
            assert condition_of(eye, "door", "Ready") == "False"
            flag(eye, "open").touch()
    assert eye.container("door").restart_count == 0


def test_a_startup_probe_holds_the_others_back(eye):
    startup = {"exec": {"command": ["test", "-e", "/s/up"]}, "periodSeconds": 1, "failureThreshold": 60}
    fails = {"exec": {"command": ["test", "-e", "/s/up"]}, **QUICK}
    one = container("c", startupProbe=startup, livenessProbe=fails, readinessProbe=fails, **SHARED)
    eye.agent.write("slow", pod("slow", one, **shared(eye.agent)))
    wait_for(lambda: (now := eye.container("slow")) and now.state.running, 10, "runs")
    time.sleep(2.5)
    now = eye.container("slow")
    assert (now.started, now.ready, now.restart_count) == (False, False, 0)
    flag(eye, "up").touch()
    wait_for(lambda: condition_of(eye, "slow", "Ready") == "True", 10, "ready")
    assert eye.container("slow").started
    assert eye.container("slow").restart_count == 0


def test_restart_policies(eye):
    ends = {"never0": ("Never", 0), "never1": ("Never", 1), "failure0": ("OnFailure", 0), "failure1": ("OnFailure", 1)}
    for name, (policy, code) in ends.items():
        eye.agent.write(name, pod(name, container("c", f"exit {code}"), restartPolicy=policy))
    wanted = {"never0": "Succeeded", "never1": "Failed", "failure0": "Succeeded"}
    wait_for(lambda: wanted.items() <= {name: one.status.phase for name, one in eye.pods().items()}.items(), 15)
    wait_for(lambda: eye.container("failure1").restart_count == 1, 10, "restarted after a failure")
    for name in ("pod_workers", "status"):
        eye.signal(name)
    wait_for(eye.all_ready, 5)
    time.sleep(1)
    phases = {name: one.status.phase for name, one in eye.pods().items()}
    assert wanted.items() <= phases.items()
    assert {name: eye.container(name).restart_count for name in wanted} == dict.fromkeys(wanted, 0)


def test_back_off_doubles_and_outlives_the_pod_workers(eye):
    def starts() -> list[float]:
        return [float(line) for line in flag(eye, "starts").read_text().split()]

    wait_for(lambda: len(starts()) >= 3, 20, "two restarts")
    wait_for(lambda: (now := eye.container("loop")).restart_count == 2 and now.state.waiting, 10, "backs off")
    for _ in range(2):
        eye.signal("pod_workers")
        time.sleep(3)
    wait_for(lambda: len(starts()) >= 4, 30, "three restarts")
    times = starts()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] < 3
    assert 10 <= gaps[1] < 14
    assert 20 <= gaps[2] < 25
    wait_for(lambda: eye.container("loop").restart_count == 3, 5, "counted")
    wait_for(lambda: (state := eye.container("loop").state.waiting) and state.reason == "CrashLoopBackOff", 5)
    assert "back-off 40s restarting failed container=c" in eye.container("loop").state.waiting.message
    remove_all(eye)
    expect_nothing(eye, 20)
