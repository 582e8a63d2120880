"""Containers that fail: back-off, restart policies, probes. And an agent that dies in between."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.agent.agent import Agent, container, pod
from tests.agent.changing import content
from tests.agent.faults import Eye, condition, expect_nothing, remove_all
from tests.harness import wait_for

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(300)]

SHARED = {"volumeMounts": [{"name": "shared", "mountPath": "/s"}]}
QUICK = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10}
"""A probe that fails at the first failure, with a timeout that a busy machine keeps."""


def shared(agent: Agent) -> dict:
    """A directory of the host, to see into a container and to steer it."""
    return {"volumes": [{"name": "shared", "hostPath": {"path": str(agent.dir / "shared")}}]}


FIRST_S = 10
"""The back-off after a container's second end; after its first one there is none."""
LONGEST_S = 300
KEPT = frozenset({"loop"})


def prepare(agent: Agent) -> None:
    """Start a crashing pod first: its back-off takes as long as all other tests here."""
    (agent.dir / "shared").mkdir()
    script = "cut -d' ' -f1 /proc/uptime >> /s/starts; exit 3"
    agent.write("loop", pod("loop", container("c", script, **SHARED), **shared(agent)))


def flag(eye: Eye, name: str) -> Path:
    return eye.agent.dir / "shared" / name


def test_a_failing_liveness_probe_restarts_its_container_alone(eye):
    # The startup probe keeps the other one back until the script minds signals, and has taken the mark away.
    probes = {
        "startupProbe": {"exec": {"command": ["test", "-e", "/tmp/up"]}, **QUICK, "failureThreshold": 100},
        "livenessProbe": {"exec": {"command": ["test", "!", "-e", "/s/dead"]}, **QUICK},
    }
    script = "trap exit TERM; rm -f /s/dead; touch /tmp/up; sleep 100000 & wait"
    main = [container("c", script, **probes, **SHARED), container("d")]
    eye.agent.write("live", pod("live", *main, **shared(eye.agent), terminationGracePeriodSeconds=30))
    wait_for(lambda: condition_of(eye, "live", "Ready") == "True", 60, "ready")
    flag(eye, "dead").touch()
    wait_for(lambda: restart_count(eye, "live") == 1, 60, "restarted")
    wait_for(lambda: condition_of(eye, "live", "Ready") == "True", 60, "ready again")
    last = eye.container("live").last_state.terminated
    assert (last.exit_code, last.reason) == (143, "Error")  # its shell leaves at SIGTERM
    assert eye.container("live", "d").restart_count == 0
    time.sleep(1.5)
    assert eye.container("live").restart_count == 1


def condition_of(eye: Eye, name: str, kind: str) -> str:
    found = eye.pods().get(name)
    return condition(found, kind) if found is not None else ""


def restart_count(eye: Eye, name: str) -> int:
    """-1 while it is not shown."""
    found = eye.container(name)
    return found.restart_count if found is not None else -1


def test_readiness_goes_and_comes_without_a_restart(eye):
    probe = {"exec": {"command": ["test", "-e", "/s/open"]}, **QUICK}
    flag(eye, "open").touch()
    eye.agent.write("door", pod("door", container("c", readinessProbe=probe, **SHARED), **shared(eye.agent)))
    for wanted in ("True", "False", "True"):
        wait_for(lambda wanted=wanted: condition_of(eye, "door", "Ready") == wanted, 60, f"Ready {wanted}")
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
    wait_for(lambda: (now := eye.container("slow")) and now.state.running, 60, "runs")
    time.sleep(2.5)
    now = eye.container("slow")
    assert (now.started, now.ready, now.restart_count) == (False, False, 0)
    flag(eye, "up").touch()
    wait_for(lambda: condition_of(eye, "slow", "Ready") == "True", 60, "ready")
    assert eye.container("slow").started
    assert eye.container("slow").restart_count == 0


def test_restart_policies(eye):
    ends = {"never0": ("Never", 0), "never1": ("Never", 1), "failure0": ("OnFailure", 0), "failure1": ("OnFailure", 1)}
    for name, (policy, code) in ends.items():
        eye.agent.write(name, pod(name, container("c", f"exit {code}"), restartPolicy=policy))
    wanted = {"never0": "Succeeded", "never1": "Failed", "failure0": "Succeeded"}

    def as_wanted() -> bool:
        return wanted.items() <= {name: one.status.phase for name, one in eye.pods().items()}.items()

    wait_for(as_wanted, 60, "each has come to its end")
    wait_for(lambda: restart_count(eye, "failure1") >= 1, 60, "restarted after a failure")
    eye.agent.kill_actors("pod_workers", "status")
    time.sleep(1)  # in which they would be started again
    wait_for(as_wanted, 60, "they are shown as before")
    assert {name: restart_count(eye, name) for name in wanted} == dict.fromkeys(wanted, 0)


def test_back_off_doubles_and_outlives_the_pod_workers(eye):
    """The number of restarts so far depends on the duration of the earlier tests."""

    def starts() -> list[float]:
        return [float(line) for line in content(flag(eye, "starts")).split()]

    def held_s(lives: int) -> int:
        """Return the back-off after so many starts: it doubles up to a limit."""
        return min(FIRST_S * 2 ** (lives - 2), LONGEST_S)

    def backs_off(lives: int) -> bool:
        now = eye.container("loop")
        waiting = now.state.waiting if now is not None and now.restart_count == lives - 1 else None
        minutes, seconds = divmod(held_s(lives), 60)
        said = f"back-off {f'{minutes}m' if minutes else ''}{seconds}s restarting failed container=c"
        return waiting is not None and said in (waiting.message or "")

    wait_for(lambda: len(starts()) >= 3, 30, "two restarts")
    wait_for(lambda: backs_off(len(starts())), 20, "backs off")
    lives = len(starts())
    for _ in range(2):
        eye.agent.kill_actors("pod_workers")
        time.sleep(3)
    wait_for(lambda: len(starts()) > lives, 2 * held_s(lives), "another restart")
    first, *gaps = (later - earlier for earlier, later in itertools.pairwise(starts()))
    assert first < FIRST_S
    for before, gap in enumerate(gaps, 2):
        assert held_s(before) <= gap < 2 * held_s(before), (before, gap)
    wait_for(lambda: backs_off(len(starts())), 20, "backs off again")
    remove_all(eye)
    expect_nothing(eye, 60)
