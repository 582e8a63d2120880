"""A mount that never answers affects its own pod alone: the node, its other pods and its operators go on.

NODEVISOR_DEAD_S is for how long it does not answer, in seconds: 600 before a release. Then the other pods' starts are
held to 1.2 times their usual time, which needs a quiet machine.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from proto.agent.actor import Describe
from proto.node.container_gc import CollectGarbage
from proto.node.stats import GetPodUsages
from tests.agent.agent import Agent, container, pod
from tests.agent.faults import Eye, conditions, ready
from tests.containerd import ContainerdInstance
from tests.harness import PATIENCE, wait_for
from tests.ports import free_port
from tests.volume.dead_fuse import DeadFuse

DEAD_S = float(os.environ.get("NODEVISOR_DEAD_S", "0"))
pytestmark = pytest.mark.timeout(300 + 2 * DEAD_S)
USUAL, OTHERS = (8, 20) if DEAD_S else (4, 8)
SILENT = 'volume "dead" has not answered for '
SAID_S = 30.0
"""From the first call to what the pod says of it: the helper has 9 s, and the machine may be busy."""


@pytest.fixture(scope="module")
def eye(containerd: ContainerdInstance) -> Iterator[Eye]:
    """An agent that looks at everything often: volumes, disks, what pods left."""
    with closing(Agent(containerd)) as agent:
        config = yaml.safe_load(agent.config.read_text())
        agent.config.write_text(yaml.safe_dump({**config, "volumeStatsAggPeriod": "1s"}))
        agent.healthz = free_port()  # type: ignore[attr-defined]
        start(agent)
        eye = Eye(agent)
        with closing(eye.client):
            yield eye


def start(agent: Agent) -> None:
    agent.start(f"--healthz-port={agent.healthz}")  # type: ignore[attr-defined]


def start_seconds(eye: Eye, count: int) -> list[float]:
    """Pods with an emptyDir, one after the other: how long until each is Ready. They go again."""
    took = []
    main = container("c", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    names = [f"other-{number}" for number in range(count)]
    for name in names:
        began = time.monotonic()
        eye.agent.write(name, pod(name, main, volumes=[{"name": "v", "emptyDir": {}}]))
        wait_for(lambda name=name: ready(eye, name), 60, f"{name} is ready")
        took.append(time.monotonic() - began)
    for name in names:
        (eye.agent.manifests / f"{name}.yaml").unlink()
    wait_for(lambda: not set(names) & set(eye.pods()), 60, "they have gone")
    return took


def message(eye: Eye, name: str) -> str:
    """Return why the pod waits for its sandbox; empty if it does not."""
    found = conditions(eye, name).get("PodReadyToStartContainers")
    return found.message or "" if found is not None else ""


def age_s(eye: Eye, name: str) -> int:
    """Return for how long the volume had not answered when the pod last said it; -1 if it does not."""
    _, said, age = message(eye, name).rpartition(SILENT)
    return int(age.removesuffix(" s")) if said else -1


def container_message(eye: Eye, name: str) -> str:
    """Return why the pod's container waits; empty if it does not."""
    found = eye.pods().get(name)
    if found is None or found.status is None or not found.status.container_statuses:
        return ""
    waiting = found.status.container_statuses[0].state.waiting
    return waiting.message or "" if waiting is not None else ""


def written_off(eye: Eye) -> list[int]:
    pids: list[int] = eye.client.ask("volume", Describe(), 5.0).state["helpers"]["written_off"]
    return pids


def uses(dead: DeadFuse, name: str = "hangs") -> dict[str, Any]:
    main = container("c", volumeMounts=[{"name": "dead", "mountPath": "/v"}])
    return pod(name, main, volumes=[{"name": "dead", "hostPath": {"path": str(dead.path)}}])


def expect_healthy(eye: Eye, dead: DeadFuse, restarts: dict[str, int]) -> None:
    """Check that no actor was restarted, and that only the volume's helper has touched the mount."""
    assert {name: row.state for name, row in eye.actors().items() if row.state != "ready"} == {}
    assert {name: row.restarts for name, row in eye.actors().items() if row.restarts} == restarts
    with urllib.request.urlopen(f"http://127.0.0.1:{eye.agent.healthz}/healthz", timeout=5) as answer:  # type: ignore[attr-defined]
        assert answer.status == 200
    for command in ("ps", "pods", "events"):
        began = time.monotonic()
        assert eye.agent.command(command).returncode == 0
        assert time.monotonic() - began < 15 * PATIENCE  # on a busy machine; a call to the mount would never return
    assert set(dead.askers.values()) == {"supervisor: volume helper"}
    assert sorted(dead.askers) == written_off(eye), "none is sent after the one that hangs"


def test_mount_that_never_answered(eye: Eye, tmp_path: Path) -> None:
    usual = start_seconds(eye, USUAL)
    with closing(DeadFuse(tmp_path / "dead")) as dead:
        began = time.monotonic()
        eye.agent.write("hangs", uses(dead))
        wait_for(lambda: SILENT in message(eye, "hangs"), 60, "the pod says it")
        assert time.monotonic() - began < SAID_S * PATIENCE, message(eye, "hangs")
        hangs_since = time.monotonic() - age_s(eye, "hangs")  # at the latest: it was told before
        meanwhile = start_seconds(eye, OTHERS)
        expect_healthy(eye, dead, {})
        restarts = 0
        while True:
            assert eye.agent.command("restart", "volume").returncode == 0
            restarts += 1
            wait_for(eye.all_ready, 30, "volume is back")
            meanwhile += start_seconds(eye, OTHERS if DEAD_S else 1)
            wait_for(lambda: SILENT in message(eye, "hangs"), 60, "the pod still says it")
            expect_healthy(eye, dead, {"volume": restarts})
            if time.monotonic() - began > DEAD_S:
                break
        eye.agent.stop()
        stopped = time.monotonic()
        start(eye.agent)

        def goes_on() -> bool:
            """Neither what status has kept from before the stop, nor counted anew."""
            return age_s(eye, "hangs") > max(stopped - hangs_since, time.monotonic() - stopped)

        wait_for(goes_on, 60, "the pod says it after the agent's restart, since the first call that did not return")
        meanwhile += start_seconds(eye, 1)
        expect_healthy(eye, dead, {})
        expect_can_go(eye, dead)
        dead.revive()
        wait_for(lambda: ready(eye, "hangs"), 60, "the pod comes up once its volume answers")
        assert written_off(eye) == []
        (eye.agent.manifests / "hangs.yaml").unlink()
        wait_for(lambda: "hangs" not in eye.pods(), 30, "it has gone")
    usual += start_seconds(eye, USUAL)
    ratio = statistics.median(meanwhile) / statistics.median(usual)
    print(f"{len(meanwhile)} other pods in {statistics.median(meanwhile):.3f} s, {ratio:.2f} times the usual")
    if DEAD_S:
        assert ratio < 1.2
    # On a busy machine the quickest start tells whether something is waited for that does not answer.
    assert min(meanwhile) < 1.2 * statistics.median(usual) + 0.5 * PATIENCE


def expect_can_go(eye: Eye, dead: DeadFuse) -> None:
    """The pod that hangs ends, without its helper; when it comes back it hangs at once, and sends no other."""
    (pid,) = written_off(eye)
    (eye.agent.manifests / "hangs.yaml").unlink()
    wait_for(lambda: "hangs" not in eye.pods(), 30, "the pod that hangs can go")
    assert written_off(eye) == [pid], "what is left is shown"
    with contextlib.suppress(FileNotFoundError):
        assert not [path for path in (eye.agent.root_dir / "pods").iterdir() if "hangs" in path.name]
    eye.agent.write("hangs", uses(dead))
    wait_for(lambda: SILENT in message(eye, "hangs"), 60, "the pod that came back says it")
    assert written_off(eye) == [pid]


def test_mount_that_dies_under_a_running_pod(eye: Eye, tmp_path: Path) -> None:
    with closing(DeadFuse(tmp_path / "dead", alive=True)) as dead:
        eye.agent.write("hangs", uses(dead))
        wait_for(lambda: ready(eye, "hangs"), 30, "the pod runs")
        dead.die()
        start_seconds(eye, 1)
        assert dead.askers == {}, "nobody has anything to do there"
        assert ready(eye, "hangs")
        (identity,) = [one for one, of in eye.agent.running().items() if of == f"hangs-{eye.agent.node}/c"]
        began = time.monotonic()
        eye.agent.containerd.cri.stop_container(identity, 0).result()
        wait_for(lambda: SILENT in container_message(eye, "hangs"), 60, "the container says why it is not started")
        assert conditions(eye, "hangs")["PodReadyToStartContainers"].status == "True", "its sandbox is ready"
        assert time.monotonic() - began < SAID_S * PATIENCE
        assert set(dead.askers.values()) == {"supervisor: volume helper"}, "not the runtime, which has no deadline"
        assert eye.agent.command("restart", "volume").returncode == 0
        start_seconds(eye, 1)
        assert sorted(dead.askers) == written_off(eye)
        dead.revive()
        wait_for(lambda: ready(eye, "hangs"), 60, "its container starts once the volume answers")
        dead.die()
        (eye.agent.manifests / "hangs.yaml").unlink()
        wait_for(lambda: "hangs" not in eye.pods(), 30, "the pod can go")


def test_dead_mount_left_by_a_removed_pod(eye: Eye) -> None:
    path = eye.agent.root_dir / "pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~other/v"
    with closing(DeadFuse(path)) as dead:
        eye.agent.stop()
        start(eye.agent)
        eye.client.ask("container_gc", CollectGarbage(), 60)
        eye.client.ask("stats", GetPodUsages(with_disk=True), 60)
        start_seconds(eye, 1)
        assert set(dead.askers.values()) <= {"supervisor: volume helper"}
        assert eye.all_ready()
        assert {name: row.restarts for name, row in eye.actors().items() if row.restarts} == {}

    def collected() -> bool:
        eye.client.ask("container_gc", CollectGarbage(), 60)
        return not path.parents[2].exists()

    wait_for(collected, 60, "it goes once somebody has unmounted it")
