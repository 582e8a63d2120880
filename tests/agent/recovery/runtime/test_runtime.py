"""Containers and sandboxes that die or vanish behind our back, and a runtime that dies, hangs or drops calls."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import threading
import time

import pytest

from actors._cri.errors import CriError
from tests.agent.agent import pod
from tests.agent.faults import MIXED, Eye, condition, create, expect_nothing, remove_all
from tests.harness import Stalls, wait_for

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.timeout(300)]

EXIT_SHOWN_S = 0.5
"""50 ms on a machine with nothing else to do; tests share theirs, and the median of three counts."""
EXIT_SHOWN_LOOKS = 10
"""The same in looks at agent and runtime, on a machine so busy that they take longer."""
AT_ONCE_S = 8.0
"""A restart without the back-off of 10 s."""


def pid_of(eye: Eye, identity: str, *, sandbox: bool = False) -> int:
    cri = eye.agent.containerd.cri
    answer = (cri.pod_sandbox_status if sandbox else cri.container_status)(identity, verbose=True).result()
    return int(json.loads(answer.info["info"])["pid"])


def running(eye: Eye, name: str) -> str:
    """Start a pod; its container's ID."""
    eye.agent.write(name, pod(name))
    wait_for(lambda: eye.ready(name), 30, f"{name} runs")
    return next(iter(eye.agent.running()))


def ready_again(eye: Eye, name: str) -> bool:
    """In its second life, by one look."""
    found = eye.pods().get(name)
    counts = [one.restart_count for one in found.status.container_statuses] if found is not None else []
    return found is not None and counts == [1] and condition(found, "Ready") == "True"


def look_s(eye: Eye, name: str, identity: str) -> float:
    """Measure a look at a container: one question to the agent, and one to the runtime."""
    began = time.monotonic()
    assert eye.container(name) is not None
    eye.agent.containerd.cri.container_status(identity).result()
    return time.monotonic() - began


def ended(eye: Eye, name: str, first: str) -> bool:
    now = eye.container(name)
    return now is not None and (now.container_id != f"containerd://{first}" or now.state.terminated is not None)


def test_a_killed_container_is_shown_at_once_and_restarted(eye):
    names = ("one", "two", "three")
    for name in names:
        eye.agent.write(name, pod(name))
    wait_for(lambda: eye.ready(*names), 30, "they run")
    identities = {name.removesuffix(f"-{eye.agent.node}/c"): identity for identity, name in eye.agent.running().items()}
    shown_s, again_s, looks_s = [], [], []
    for name in names:
        first = identities[name]
        pid = pid_of(eye, first)
        looks_s.append(look_s(eye, name, first))
        with Stalls() as machine:
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda name=name, first=first: ended(eye, name, first), 20, "its exit is shown")
            shown_s.append(time.monotonic() - began - machine.longest_s)
            wait_for(lambda name=name: ready_again(eye, name), 30, "restarted")
            again_s.append(time.monotonic() - began - machine.longest_s)
        last = eye.container(name).last_state.terminated
        assert (last.exit_code, last.reason, last.container_id) == (137, "Error", f"containerd://{first}")
    assert max(again_s) < AT_ONCE_S
    limit_s = max(EXIT_SHOWN_S, EXIT_SHOWN_LOOKS * statistics.median(looks_s))
    assert statistics.median(shown_s) < limit_s, (shown_s, looks_s)


def test_a_killed_sandbox_is_replaced(eye):
    first = running(eye, "one")
    old = eye.agent.sandboxes()[0]
    os.kill(pid_of(eye, old, sandbox=True), signal.SIGKILL)
    wait_for(
        lambda: first not in eye.agent.running() and ready_again(eye, "one") and eye.runtime() == ["one/c"],
        30,
        "replaced",
    )
    listed = eye.agent.containerd.cri.list_pod_sandbox().result()
    newest = max(listed, key=lambda one: one.metadata.attempt)
    assert (newest.metadata.attempt, newest.state) == (1, 0)
    assert [one.state for one in listed if one.id != newest.id] in ([], [1])


@pytest.mark.parametrize("state", ["stopped", "removed"])
def test_a_container_stopped_or_removed_by_somebody_else(eye, state):
    first, cri = running(eye, "one"), eye.agent.containerd.cri
    cri.stop_container(first, 0).result()
    if state == "removed":
        with contextlib.suppress(Exception):
            cri.remove_container(first).result()
    wait_for(
        lambda: ready_again(eye, "one") and first not in eye.agent.running() and eye.runtime() == ["one/c"], 30, "again"
    )


def test_a_sandbox_removed_by_somebody_else(eye):
    first, cri = running(eye, "one"), eye.agent.containerd.cri
    old = eye.agent.sandboxes()[0]
    cri.stop_pod_sandbox(old).result()

    def removed() -> bool:
        """Remove it like a user: again while containerd refuses because the agent starts a container there."""
        try:
            cri.remove_pod_sandbox(old).result()
        except CriError:
            return False
        return True

    wait_for(removed, 30, "the sandbox is removed")
    wait_for(lambda: eye.ready("one") and eye.runtime() == ["one/c"] and first not in eye.agent.running(), 30, "again")
    assert old not in eye.agent.sandboxes()


def test_containerd_killed_while_pods_start_run_and_stop(eye):
    instance = eye.agent.containerd
    create(eye)
    time.sleep(0.5)
    instance.kill()
    time.sleep(0.3)
    instance.start()
    wait_for(lambda: eye.ready(*MIXED), 90, "all ready")
    before = eye.agent.running()
    instance.kill()
    time.sleep(1)
    instance.start()
    time.sleep(1)
    assert eye.agent.running() == before
    # A probe has a second, which a runtime that starts on a busy machine may need three times in a row.
    assert {name for name, one in eye.listed().items() if condition(one, "Ready") != "True"} <= {"probed"}
    wait_for(lambda: eye.ready(*MIXED), 30, "the probe succeeds")
    remove_all(eye)
    time.sleep(0.5)
    instance.kill()
    instance.start()
    expect_nothing(eye, 60)
    assert all(row.restarts == 0 for row in eye.actors().values())


def test_a_runtime_that_stands_still(eye):
    first = running(eye, "one")
    pid = eye.agent.containerd.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    resume = threading.Timer(12, os.kill, (pid, signal.SIGCONT))
    resume.start()
    try:
        eye.agent.write("two", pod("two"))
        while resume.is_alive():
            assert eye.all_ready()
            assert condition(eye.listed()["one"], "Ready") == "True"
            time.sleep(0.5)
    finally:
        resume.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: eye.ready("one", "two"), 60, "goes on")
    assert first in eye.agent.running()
    assert all(row.restarts == 0 for row in eye.actors().values())
    assert eye.restarts() == {}
