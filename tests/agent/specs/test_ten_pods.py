"""Ten pods, and every process of the agent killed while they run."""

from __future__ import annotations

import os
import re
import signal
import statistics
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from proto.agent.supervisor import Note, Started
from supervisor.sockets.client import Client
from tests.agent.agent import ACTORS, Agent, condition, state
from tests.agent.changing import content, files
from tests.agent.ten_pods import TEN_PODS, all_settled, settled_pods
from tests.floors import cpu_waits_s, interpreter_s, longest_wait_s
from tests.harness import wait_for

BACK_WITHIN_S = 0.1
"""Time from the kill to the event that it is in service, the median of KILLS.

What the processes on the way and this one waited for a CPU is not counted: other tests run on the same cores."""
BACK_WITHIN_FLOORS = 1
"""Times a Python process that imports modules, between the kills (median): a shared core is slower, too."""
KILLS = 5
BACK_OFF = re.compile(r"starts again in (\S+) s")
"""The supervisor's configured pause before a further restart: 5 ms, and twice as much for each next kill."""


def readiness(agent: Agent) -> dict[str, tuple[str, str]]:
    """Per pod: Ready and since when."""
    found = {}
    for name, item in agent.pods().items():
        ready = next((one for one in item["status"]["conditions"] if one["type"] == "Ready"), {})
        found[name] = (ready.get("status", ""), ready.get("lastTransitionTime", ""))
    return found


def restart_counts(agent: Agent) -> dict[str, int]:
    return {
        f"{name}/{one['name']}": one["restartCount"]
        for name, item in agent.pods().items()
        for one in item["status"].get("containerStatuses", [])
    }


def steady(counts: dict[str, int]) -> dict[str, int]:
    """Without the pod that keeps crashing."""
    return {name: count for name, count in counts.items() if not name.startswith("crashing/")}


def test_all_reach_the_state_the_kubelet_would_show(settled):
    pods = wait_for(lambda: settled_pods(settled), 60, "settled")
    assert {name: item["status"]["phase"] for name, item in pods.items()} == {
        name: "Succeeded" if name == "done" else "Running" for name in TEN_PODS
    }
    assert condition(pods["inits"], "Initialized") == "True"
    assert [one["state"]["terminated"]["reason"] for one in pods["inits"]["status"]["initContainerStatuses"]] == [
        "Completed", "Completed",
    ]  # fmt: skip
    assert state(pods["crashing"], "c")["waiting"]["message"].startswith("back-off ")
    assert state(pods["done"], "c")["terminated"]["reason"] == "Completed"
    assert pods["plain"]["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    assert pods["plain"]["metadata"]["name"] == "plain-vm"


def test_labels_and_annotations_in_the_runtime_are_the_kubelets(settled):
    item = settled.pod("http")
    meta = item["metadata"]
    cri = settled.containerd.cri
    sandbox = next(one for one in cri.list_pod_sandbox().result() if one.metadata.name == "http-vm")
    assert dict(sandbox.labels) == {
        "app": "http",
        "io.kubernetes.pod.name": "http-vm",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": meta["uid"],
    }
    assert sandbox.annotations["kubernetes.io/config.hash"] == meta["uid"]
    assert sandbox.annotations["kubernetes.io/config.source"] == "file"
    container = next(one for one in cri.list_containers().result() if one.pod_sandbox_id == sandbox.id)
    assert dict(container.labels) == {
        "io.kubernetes.container.name": "web",
        "io.kubernetes.pod.name": "http-vm",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": meta["uid"],
    }
    assert set(container.annotations) == {
        "io.kubernetes.container.hash",
        "io.kubernetes.container.restartCount",
        "io.kubernetes.container.terminationMessagePath",
        "io.kubernetes.container.terminationMessagePolicy",
        "io.kubernetes.pod.terminationGracePeriod",
    }


def test_logs_are_where_the_kubelet_puts_them(settled):
    item = settled.pod("crashing")
    directory = settled.dir / "logs" / f"default_crashing-vm_{item['metadata']['uid']}" / "c"

    def lines() -> list[str]:
        """Return the logs of all restarts: the newest may be empty yet, and the oldest may be removed."""
        return [line for path in files(directory) for line in content(path).decode().splitlines()]

    assert wait_for(lines, 20, "a line")[0].split(" ", 3)[1:] == ["stdout", "F", "going down"]
    wait_for(lambda: "going down" in settled.command("logs", "crashing").stdout, 30, "what its present life said")


def waits_on_the_way(agent: Agent) -> list[dict[str, float]]:
    """The waits for a CPU of this thread, and of all threads of the processes that start an actor."""
    parents = (agent.rows()[parent]["pid"] for parent in ("supervisor", "forkserver"))
    return [cpu_waits_s(os.getpid(), threading.get_native_id()), *map(cpu_waits_s, parents)]


def kill_and_time(agent: Agent, name: str) -> tuple[dict[str, Any], Started, float]:
    """(row before, the event of its being in service again, seconds from the kill until then without the back-off)."""
    before, back_off_s = agent.rows()[name], 0.0
    with Client(str(agent.run_dir)) as client, closing(client.events()) as events:
        next(events)  # the PeerStates: from here on nothing is missed
        began = time.monotonic()
        os.kill(before["pid"], signal.SIGKILL)
        for event in events:
            if isinstance(event, Note) and event.actor == name and (pause := BACK_OFF.search(event.text)):
                back_off_s = float(pause[1])
            if isinstance(event, Started) and event.name == name:
                return before, event, time.monotonic() - began - back_off_s
    raise AssertionError("the event stream ended")


@pytest.mark.parametrize("name", [*ACTORS, "objects"])
def test_a_killed_actor_is_back_and_no_pod_notices(settled, name):
    wait_for(lambda: all_settled(settled), 60, "settled")
    running, ready, counts = steady_running(settled), steady_ready(settled), steady(restart_counts(settled))
    times_s, floors_s = [], []
    for _ in range(KILLS):
        waits = waits_on_the_way(settled)
        before, after, took_s = kill_and_time(settled, name)
        waited_s = sum(map(longest_wait_s, waits, waits_on_the_way(settled)))
        assert after.incarnation == before["incarnation"] + 1
        own_s = longest_wait_s({}, cpu_waits_s(settled.rows()[name]["pid"]))
        times_s.append(took_s - waited_s - own_s)
        floors_s.append(interpreter_s())
    assert settled.rows()[name]["state"] == "ready"
    limit_s = max(BACK_WITHIN_S, BACK_WITHIN_FLOORS * statistics.median(floors_s))
    assert statistics.median(times_s) < limit_s, (times_s, floors_s)
    watch_until = time.monotonic() + 2.5  # two probe periods and a re-list of the config directory
    while time.monotonic() < watch_until:
        shown = steady_ready(settled)
        assert {pod: value for pod, value in shown.items() if pod in ready} in ({}, ready)
        assert steady_running(settled) == running
    wait_for(lambda: steady_ready(settled) == ready, 20, "every pod is shown as before")
    assert steady(restart_counts(settled)) == counts


def steady_running(agent: Agent) -> dict[str, str]:
    return {identity: name for identity, name in agent.running().items() if not name.startswith("crashing-")}


def steady_ready(agent: Agent) -> dict[str, tuple[str, str]]:
    return {name: value for name, value in readiness(agent).items() if name != "crashing"}


def test_restart_by_command(settled):
    before, ready, running = settled.rows()["probe"], steady_ready(settled), steady_running(settled)
    settled.command("restart", "probe")
    after = settled.rows()["probe"]
    assert (after["incarnation"], after["state"]) == (before["incarnation"] + 1, "ready")
    assert (steady_ready(settled), steady_running(settled)) == (ready, running)


def test_killed_supervisor_starts_again_with_the_same_containers(settled):
    wait_for(lambda: all_settled(settled), 60, "settled")
    running, counts, ready = steady_running(settled), restart_counts(settled), steady_ready(settled)
    incarnations = {name: row["incarnation"] for name, row in settled.rows().items()}
    settled.kill()
    settled.start()
    wait_for(lambda: all_settled(settled), 60, "settled after the restart")
    assert steady_running(settled) == running
    assert steady(restart_counts(settled)) == steady(counts)
    assert steady_ready(settled) == ready
    assert all(row["incarnation"] > incarnations[name] for name, row in settled.rows().items() if name in ACTORS)


def test_sigterm_ends_the_agent_and_leaves_pods_running(settled):
    running = steady_running(settled)
    assert settled.stop() == 0
    assert steady_running(settled) == running
    settled.start()
    wait_for(lambda: all_settled(settled), 60, "settled after the restart")
    assert steady_running(settled) == running
