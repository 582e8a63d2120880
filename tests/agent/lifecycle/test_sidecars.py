"""Restartable init containers (KEP-753) on containerd: when they start, what keeps them running, when they end."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime

import pytest

from tests.agent.lifecycle.steps import STUBBORN, Diary, execs, noting, sidecar
from tests.harness import PATIENCE, wait_for

pytestmark = pytest.mark.timeout(300)

SLOW = "trap 'note TERM; sleep 1; note left; exit 0' TERM; note up; while :; do sleep 0.1; done"
"""Takes a second to end."""


@pytest.fixture(scope="module")
def diary(api):
    one = Diary(api)
    with closing(one.client):
        yield one


def test_each_waits_until_the_one_before_it_has_started(api, diary):
    started = {"exec": {"command": ["test", "-e", "/tmp/started"]}}
    late = sidecar(
        "late",
        "note up; sleep 2; note started; touch /tmp/started; sleep 100000 & wait",
        startupProbe={**started, "periodSeconds": 1, "failureThreshold": 60},
    )
    inits = [noting("first", "note up"), late, noting("between", "note up"), sidecar("quick")]
    api.add(diary.pod("gate", noting("c"), initContainers=inits))
    diary.wait_up("gate", of=("quick", "c"))
    assert diary.words("gate")[:4] == ["first up", "late up", "late started", "between up"]
    assert diary.began("gate", "quick") < diary.began("gate", "c")
    states = {one.name: one for one in api.status("gate").status.init_container_statuses}
    assert [states[name].state.terminated is not None for name in ("first", "late", "between", "quick")] == [
        True,
        False,
        True,
        False,
    ]
    assert states["late"].started
    assert states["late"].ready
    diary.delete("gate")


def test_ended_or_unhealthy_sidecar_restarts_beside_main_ones(api, diary):
    once = "note up; test -e /out/once || { touch /out/once; exit 1; }; sleep 100000 & wait"
    sick = sidecar(
        "sick",
        "trap 'note TERM; exit 0' TERM; note up; test -e /out/s || touch /out/s /tmp/s; sleep 1000 & wait",
        livenessProbe={
            "exec": {"command": ["sh", "-c", "! test -e /tmp/s"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "timeoutSeconds": 10,
        },
    )
    api.add(diary.pod("again", noting("c"), initContainers=[sidecar("crash", once), sick]))

    def restarted():
        found = [diary.status("again", name) for name in ("crash", "sick")]
        return all(one is not None and one.restart_count == 1 and one.state.running for one in found)

    wait_for(restarted, 60, f"both ran twice; log: {api.agent.log}")
    assert diary.status("again").restart_count == 0
    diary.wait("again", "c up")
    assert diary.words("again").count("c up") == 1
    assert "sick TERM" in diary.words("again")
    diary.wait_event("again", "Killing", "Init container sick failed liveness probe")
    diary.delete("again")


def test_its_readiness_counts_for_the_pod(api, diary):
    probe = {"exec": {"command": ["test", "-e", "/out/ready"]}, "periodSeconds": 1}
    api.add(diary.pod("unready", noting("c"), initContainers=[sidecar("s", readinessProbe=probe)]))
    diary.wait("unready", "c up")
    wait_for(lambda: (one := diary.status("unready")) and one.ready, 20, "its main container is ready")
    assert api.condition("unready", "Ready") == "False"
    (diary.dir / "ready").touch()
    api.wait_ready("unready")
    diary.delete("unready")


def test_sidecars_end_after_main_ones_in_reverse_order(api, diary):
    hook = {"preStop": execs("note hook")}
    inits = [sidecar("a", SLOW), sidecar("b", SLOW, lifecycle=hook)]
    api.add(diary.pod("order", noting("c", SLOW), noting("d", SLOW), initContainers=inits))
    diary.wait_up("order", of=("a", "b", "c", "d"))
    diary.delete("order")
    words = [word for word in diary.words("order") if not word.endswith(" up")]
    # The hook of a sidecar does not wait for its turn.
    assert words.index("b hook") < words.index("b TERM")
    words.remove("b hook")
    assert sorted(words[:4]) == ["c TERM", "c left", "d TERM", "d left"]
    assert words[4:] == ["b TERM", "b left", "a TERM", "a left"]


def test_sidecars_share_the_grace_period_with_2_s_at_least(api, diary):
    inits = [sidecar("a", STUBBORN), sidecar("b", STUBBORN)]
    spec = {"initContainers": inits, "terminationGracePeriodSeconds": 3}
    api.add(diary.pod("short-grace", noting("c", STUBBORN), **spec))
    diary.wait_up("short-grace", of=("a", "b", "c"))
    api.hold.add("short-grace")  # its last status is shown until its object goes
    began_s, began_uptime_s = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    api.delete("short-grace")
    shown = api.wait_phase("short-grace", "Failed")
    assert time.time() - began_s < 20 * PATIENCE
    words = [word for word in diary.words("short-grace") if not word.endswith(" up")]
    assert words[0] == "c TERM"
    assert sorted(words[1:]) == ["a TERM", "b TERM"]
    # After the grace period the order no longer counts: both are told then, and killed after the least
    # there is, no sooner. The status says in whole seconds when that was, up to one too early.
    assert diary.at("short-grace", "b TERM") - began_uptime_s >= 2.9
    for one in shown.status.init_container_statuses:
        assert datetime.fromisoformat(one.state.terminated.finished_at).timestamp() - began_s >= 3 + 2 - 1, one
    api.hold.discard("short-grace")
    api.wait_gone("short-grace")


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_sidecars_do_not_keep_a_finished_pod_alive(api, diary, code, phase):
    name = f"job-{code}"
    inits = [sidecar("a", SLOW), sidecar("b", SLOW)]
    both_up = "until grep -q 'a up' /out/$POD && grep -q 'b up' /out/$POD; do sleep 0.1; done"  # they mind signals
    main = noting("c", f"note up; {both_up}; exit {code}")
    api.add(diary.pod(name, main, initContainers=inits, restartPolicy="Never"))
    shown = api.wait_phase(name, phase)
    assert diary.words(name)[-4:] == ["b TERM", "b left", "a TERM", "a left"]
    ended = [one.state.terminated for one in shown.status.init_container_statuses]
    assert [one.exit_code for one in ended if one is not None] == [0, 0]
    assert shown.status.container_statuses[0].state.terminated.exit_code == code
    api.delete(name)
    api.wait_gone(name)
