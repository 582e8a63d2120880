"""An API server that goes away while pods crash and probes flip, and managers that are killed while pods come and go.

Some seconds each in the ordinary run; `NODEVISOR_OUTAGE_S=180` and `NODEVISOR_STORM_S=300` for as long as that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors._kube.errors import ApiError
from proto.agent.actor import Describe
from proto.pods.events import ListEvents
from proto.pods.pod_workers import ListPodWorkers
from tests.agent.agent import SLEEP, container, is_ready, pod
from tests.agent.changing import directories
from tests.agent.joined import MIRROR, Joined, Repeated, joined
from tests.containerd import ContainerdInstance
from tests.controlplane.binaries import API_SERVER, ETCD
from tests.harness import wait_for

OUTAGE_S = float(os.environ.get("NODEVISOR_OUTAGE_S", "8"))
STORM_S = float(os.environ.get("NODEVISOR_STORM_S", "10"))
PODS = 30 if STORM_S >= 60 else 8

pytestmark = [pytest.mark.usefixtures("own_control_plane"), pytest.mark.timeout(300 + 2 * OUTAGE_S + 2 * STORM_S)]

NODE = "stormy"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
CONVERGED_S = 10.0 if OUTAGE_S >= 60 else 30.0
"""After the API server is back; a second or two, in the ordinary run on a machine that may be busy."""
DRAINED_S = 60.0 if STORM_S < 60 else 180.0
"""After the storm: what was begun by then has to end, on a machine that may be busy."""
KILLED = ("status", "config", "node", "events")
FLIPS = "trap exit TERM; while :; do touch /tmp/ok; sleep 2; rm /tmp/ok; sleep 2; done"
CRASHES = "sleep 1.5; exit 3"


@pytest.fixture(scope="module")
def cluster(containerd: ContainerdInstance) -> Iterator[Joined]:
    with joined(
        containerd, NODE, nodeLeaseDurationSeconds=8, crashLoopBackOff={"maxContainerRestartPeriod": "2s"}
    ) as one:
        yield one


def probe(**more: Any) -> dict[str, Any]:
    return {"exec": {"command": ["test", "-f", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1, **more}


def lasting(cluster: Joined) -> dict[str, str] | None:
    """ID to name of the containers that no outage is to end, once all run."""
    found = {one: name for one, name in cluster.agent.running().items() if name.startswith(("steady", "still", "flip"))}
    return found if len(found) == 6 else None


def renewed_at(cluster: Joined) -> datetime:
    lease = cluster.cp.get(LEASE)
    return datetime.fromisoformat(lease["spec"]["renewTime"]) if lease else datetime.min.replace(tzinfo=UTC)


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest, cluster: Joined) -> Iterator[None]:
    """After each test, remove every pod, mirrors with their manifests, except in the last: its etcd has lost some."""
    yield
    if request.function is not test_api_server_with_an_emptied_etcd_gets_mirrors_again:
        for path in cluster.agent.manifests.glob("*.yaml"):
            path.unlink()
        wait_for(lambda: _removed(cluster), 60, "every pod goes")


def _removed(cluster: Joined) -> bool:
    stored = cluster.stored()
    for name in stored:
        with contextlib.suppress(ApiError):
            cluster.delete(name, 0)
    return not stored and not cluster.eye.pods()


def test_changes_during_an_outage_are_reported_within_seconds(cluster: Joined) -> None:
    steady = [f"steady-{number}" for number in range(4)]
    for name in steady:
        cluster.create(pod(name))
    cluster.agent.write("still", pod("still"))
    cluster.create(pod("crasher", container("c", CRASHES)))
    cluster.create(pod("flipper", container("c", FLIPS, readinessProbe=probe())))
    cluster.create(
        pod("unlive", container("c", "touch /tmp/ok; sleep 4; rm /tmp/ok; sleep 100", livenessProbe=probe()))
    )
    cluster.create(pod("finisher", container("c", f"sleep {OUTAGE_S / 2:g}"), restartPolicy="Never"))
    cluster.create(pod("leaver", container("c", f"trap 'sleep {OUTAGE_S / 2:g}; exit 0' TERM; sleep 100000 & wait")))
    names = {*steady, f"still-{NODE}", "crasher", "flipper", "unlive", "finisher", "leaver"}
    wait_for(lambda: names <= cluster.stored().keys(), 30, "every pod, mirrors too")
    kept = wait_for(lambda: lasting(cluster), 60, f"the lasting ones run; log: {cluster.agent.log}")
    cluster.converged(60, "the start")
    cluster.delete("leaver", round(OUTAGE_S) + 30)
    wait_for(lambda: is_leaving(cluster, "leaver"), 30, "the node knows of it")
    cluster.cp.stop(API_SERVER)
    began = time.monotonic()
    crashes = cluster.eye.restarts().get("crasher/c", 0)
    time.sleep(OUTAGE_S)  # this is the outage
    assert kept.items() <= cluster.agent.running().items()
    wait_for(lambda: cluster.eye.restarts().get("crasher/c", 0) > crashes, 60, "it crashes and starts on its own")
    cluster.cp.start_api()
    back = time.monotonic()
    cluster.converged(CONVERGED_S, "after the outage")
    took = time.monotonic() - back
    wait_for(lambda: "leaver" not in cluster.stored(), CONVERGED_S, "its object goes after its last status")
    stored = cluster.stored()
    assert stored["finisher"]["status"]["phase"] == "Succeeded"
    wait_for(lambda: (datetime.now(UTC) - renewed_at(cluster)).total_seconds() < 4, 30, "the Lease goes on")
    assert kept.items() <= cluster.agent.running().items()
    assert [stored[name]["status"]["containerStatuses"][0]["restartCount"] for name in steady] == [0] * len(steady)
    print(f"API server away for {back - began:.1f} s; all told {took:.2f} s after its return")


def is_leaving(cluster: Joined, name: str) -> bool:
    """Return True once the node knows that the pod is deleted."""
    found = cluster.eye.pods().get(name)
    return found is not None and found.metadata.deletion_timestamp is not None


# Kills


def manifest(number: int) -> dict[str, Any]:
    """Small pods of every kind in turn."""
    name = f"churn-{number}"
    match number % 5:
        case 0:
            return pod(name, container("c", CRASHES))
        case 1:
            return pod(name, container("c", FLIPS, readinessProbe=probe()))
        case 2:
            return pod(name, container("c", "sleep 3"), restartPolicy="Never")
        case 3:
            return pod(name, container("c"), initContainers=[container("i", "exit 0")])
        case _:
            return pod(name)


def going(cluster: Joined) -> list[str]:
    return [name for name, one in cluster.stored().items() if "deletionTimestamp" in one["metadata"]]


def drained(cluster: Joined) -> None:
    """No object is stuck Terminating."""
    try:
        wait_for(lambda: not going(cluster), DRAINED_S)
    except AssertionError:
        stored = {name: cluster.stored()[name] for name in going(cluster)}
        shown = {name: (one["metadata"]["uid"], one["status"].get("phase")) for name, one in stored.items()}
        rows = [row for row in cluster.eye.client.ask("pod_workers", ListPodWorkers(), 5.0).pods if row.name in stored]
        raise AssertionError(f"stuck Terminating: {shown}\n{rows}\n{cluster.evidence()}") from None


class Churn:
    """Pods of the API and of files that come, change and go."""

    def __init__(self, cluster: Joined, seed: int) -> None:
        self.cluster = cluster
        self.numbers = itertools.count()
        self.chance = random.Random(seed)
        self.there: list[str] = []
        self.files = {f"file-{number}": 0 for number in range(3)}
        self.versions = itertools.count(1)

    def fill(self) -> None:
        while len(self.there) < PODS:
            self.add()
        for name in self.files:
            self.write(name)

    def add(self) -> None:
        made = manifest(next(self.numbers))
        self.cluster.create(made)
        self.there.append(made["metadata"]["name"])

    def write(self, name: str) -> None:
        self.cluster.agent.write(name, pod(name, container("c", f": {next(self.versions)}; {SLEEP}")))

    def step(self) -> None:
        with contextlib.suppress(ApiError):
            match self.chance.randrange(6):
                case 0:
                    self.write(self.chance.choice(list(self.files)))
                case 1:
                    name = f"{self.chance.choice(list(self.files))}-{NODE}"
                    self.cluster.delete(name)
                case _:
                    gone = self.there.pop(self.chance.randrange(len(self.there)))
                    self.cluster.delete(gone, self.chance.choice((0, 1, 1, 5)))
                    self.add()


def kill_one(cluster: Joined, chance: random.Random, killed: Counter[str]) -> None:
    name = chance.choice(KILLED)
    row = cluster.eye.actors().get(name)
    if row is not None and row.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(row.pid, signal.SIGKILL)
            killed[name] += 1


def test_managers_killed_every_second_lose_and_repeat_nothing(cluster: Joined) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    churn, killed = Churn(cluster, seed), Counter[str]()
    churn.fill()
    chance = random.Random(seed + 1)
    steps = Repeated(churn.step, 0.3)
    kills = Repeated(lambda: kill_one(cluster, chance, killed), 1.0)
    time.sleep(STORM_S)  # this is the storm
    wait_for(lambda: sum(killed.values()) >= STORM_S * 0.6, STORM_S, "as many kills, on a machine that may be busy")
    kills.close()
    steps.close()
    began = time.monotonic()
    wait_for(cluster.eye.all_ready, 60, "every actor is back")
    drained(cluster)
    cluster.converged(DRAINED_S, "after the storm")
    mirrors = {name for name, one in cluster.stored().items() if MIRROR in one["metadata"].get("annotations", {})}
    assert mirrors == {f"{name}-{NODE}" for name in churn.files}
    assert not going(cluster)
    # A container that has just crashed for the first time is started, and told to be, before its status says so.
    wait_for(lambda: not too_often(cluster, churn), 10, f"no event too many: {too_often(cluster, churn)}")
    print(f"killed {dict(killed)}; agreed {time.monotonic() - began:.1f} s after the storm")


def too_often(cluster: Joined, churn: Churn) -> list[tuple[str, int, int]]:
    """Return pods with repeated events, and the counts. A container without restarts has one Started and no Killing."""
    told: Counter[tuple[str, str]] = Counter()
    for event in cluster.eye.client.ask("events", ListEvents(), 5.0).events:
        told[event.involved_object.name or "", event.reason or ""] += event.count or 1
    restarts, found = cluster.eye.restarts(), []
    for name in churn.there:
        if not any(one.startswith(f"{name}/") for one in restarts):
            containers = 2 if int(name.rpartition("-")[2]) % 5 == 3 else 1
            if told[name, "Started"] > containers or told[name, "Killing"]:
                found.append((name, told[name, "Started"], told[name, "Killing"]))
    return found


# Leftovers of others


def test_process_unknown_to_the_runtime_delays_no_deletion(cluster: Joined) -> None:
    """Such a process is left of a sandbox whose start was given up."""
    cluster.create(pod("haunted"))
    wait_for(lambda: is_ready(cluster.stored().get("haunted", {})), 60)
    uid = cluster.stored()["haunted"]["metadata"]["uid"]
    root = Path("/sys/fs/cgroup/pids")
    (where,) = directories((root if root.is_dir() else root.parent) / cluster.agent.dir.name, f"pod{uid}")
    (where / "forgotten").mkdir()
    with subprocess.Popen(["sleep", "1000"]) as forgotten:
        try:
            (where / "forgotten/cgroup.procs").write_text(str(forgotten.pid))
            cluster.delete("haunted")
            wait_for(lambda: not cluster.stored(), 30, f"the object goes; log: {cluster.agent.log}")
            assert forgotten.wait(30) == -signal.SIGKILL
        finally:
            forgotten.kill()


# Restarts


def test_an_agent_that_starts_again_writes_nothing_that_is_known(cluster: Joined) -> None:
    cluster.create(pod("stays", container("c", resources={"limits": {"cpu": "0.1", "memory": "16Mi"}})))
    cluster.agent.write("static", pod("static"))
    names = ("stays", f"static-{NODE}")
    wait_for(lambda: all(is_ready(cluster.stored().get(name, {})) for name in names), 60, "both Ready")
    cluster.converged(30)
    before = {name: one["metadata"] for name, one in cluster.stored().items()}
    running = cluster.agent.running()
    cluster.agent.kill()
    cluster.agent.start("--kubeconfig", str(cluster.cp.kubeconfig(NODE)))
    wait_for(cluster.eye.all_ready, 60, "every actor in service")
    cluster.converged(30, "after the restart")
    written = wait_for(lambda: quiet(cluster), 30, "nothing more to say") - 1
    assert written <= len(names), "a server that drops fields is told them once more"
    assert {name: one["metadata"] for name, one in cluster.stored().items()} == before
    assert cluster.agent.running() == running


def quiet(cluster: Joined) -> int | None:
    """Return the number of written statuses plus one; None while more are to be written."""
    api = cluster.eye.client.ask("status", Describe(), 5.0).state["api"]
    return api["written"] + 1 if api["seen"] == 2 and api["pending"] == 0 else None


def test_api_server_with_an_emptied_etcd_gets_mirrors_again(cluster: Joined) -> None:
    cluster.agent.write("static", pod("static"))
    cluster.create(pod("forgotten"))
    names = ("forgotten", f"static-{NODE}")
    both = f"both are ready; log: {cluster.agent.log}"
    wait_for(lambda: all(is_ready(cluster.stored().get(name, {})) for name in names), 60, both)
    old = cluster.stored()[f"static-{NODE}"]["metadata"]["uid"]
    running = cluster.agent.running()
    cluster.cp.stop(API_SERVER)
    cluster.cp.stop(ETCD)
    shutil.rmtree(cluster.cp.dir / "etcd")
    cluster.cp.start_etcd()
    cluster.cp.start_api()
    mirror = wait_for(lambda: ready_mirror(cluster, old), 60, "the mirror, with its status")
    node = cluster.cp.call("GET", f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
    assert [one["uid"] for one in mirror["metadata"]["ownerReferences"]] == [node]
    assert cluster.agent.running() == running
    cluster.create(pod("new"))
    wait_for(lambda: is_ready(cluster.stored().get("new", {})), 60, "a pod of the new etcd")


def ready_mirror(cluster: Joined, not_uid: str) -> Any:
    found = cluster.stored().get(f"static-{NODE}")
    return found if found and found["metadata"]["uid"] != not_uid and is_ready(found) else None
