"""kill -9 of the runtime actor at random moments while twenty pods run, fail, restart, come and go.

NODEVISOR_KILLS is how often it is killed: 200 before a release.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._cri.errors import CriError
from proto.v1 import ContainerStatus, Pod
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.changing import cgroups, content, directories, processes
from tests.agent.embedded import answered, embedded_agent
from tests.agent.faults import Eye, condition
from tests.containerd.images import Image, write_archive
from tests.harness import wait_for

KILLS = int(os.environ.get("NODEVISOR_KILLS", "12"))
STEADY, ENDS, RESTARTS, STOPS = 6, 6, 4, 4
NO_BACK_OFF = {"defaults": {"max_restarts": 100_000, "reset_after_s": 0.001, "backoff_cap_s": 0.1}}
OVER = ("Succeeded", "Failed")
LIFE = "export NODEVISOR_TEST=$MARK; echo $HOSTNAME/$NAME $(cat /proc/sys/kernel/random/uuid) >> /host/lives; "
"""Each life of a container is one line, so that none can be lived twice unseen; the mark finds what was left behind."""


@pytest.fixture
def eye(tmp_path: Path) -> Iterator[Eye]:
    settings = tmp_path / "supervisor.yaml"
    settings.write_text(yaml.safe_dump(NO_BACK_OFF))
    with embedded_agent("--supervisor-config", str(settings)) as agent:
        looking = Eye(agent)
        with closing(looking.client):
            yield looking


class Churn(threading.Thread):
    """Pods that stay, and three kinds of pods that come and go.

    Containers end with their own exit codes, or fail once and then succeed, or are removed while they run.
    """

    def __init__(self, eye: Eye, host: Path) -> None:
        super().__init__(daemon=True)
        self.agent, self.host = eye.agent, host
        self.random = random.Random(KILLS)
        self.slots = {
            f"{kind}{number}": kind
            for kind, count in (("ends", ENDS), ("restarts", RESTARTS), ("stops", STOPS))
            for number in range(count)
        }
        self.names: dict[str, str] = {}
        """Slot to the pod that is there or ends."""
        self.wanted: dict[str, dict[str, int]] = {}
        """Pod to the exit codes of its containers."""
        self.rounds: Counter[str] = Counter()
        self.problems: list[str] = []
        self.end = threading.Event()

    def run(self) -> None:
        client = Client(self.agent.run_dir)
        mine = Eye(self.agent)
        with closing(client), closing(mine.client):
            while not self.end.is_set() or self.names:  # what was begun comes to its end
                time.sleep(0.1)
                pods = mine.pods()
                if pods:
                    for slot in self.slots:
                        self.step(slot, pods)

    def step(self, slot: str, pods: dict[str, Pod]) -> None:
        name = self.names.get(slot)
        if name is None:
            if self.end.is_set():
                return
            self.rounds[slot] += 1
            self.names[slot] = name = f"{slot}-{self.rounds[slot]}"
            self.agent.write(name, self.manifest(name, self.slots[slot]))
            return
        path, found = self.agent.manifests / f"{name}.yaml", pods.get(name)
        if not path.exists():
            if found is None:
                del self.names[slot]
        elif found is not None and self.is_done(slot, found):
            self.check(name, self.slots[slot], found)
            path.unlink()

    def is_done(self, slot: str, found: Pod) -> bool:
        if self.slots[slot] == "stops":
            chosen = condition(found, "Ready") == "True" and self.random.random() < 0.3
            # Ready is a pod once its containers run, whether or not their shells have come to their first line.
            return chosen and f"{found.metadata.name}/a ".encode() in content(self.host / "lives")
        return found.status is not None and found.status.phase in OVER

    def manifest(self, name: str, kind: str) -> dict[str, object]:
        codes = {one: self.random.randint(0, 120) for one in ("a", "b")}
        self.wanted[name] = codes
        pause = self.random.uniform(0, 1.5)
        if kind == "ends":
            scripts = {one: f"sleep {pause:.2f}; exit {code}" for one, code in codes.items()}
            return self.pod(name, scripts, restartPolicy="Never")
        if kind == "restarts":
            code = codes["a"] or 1
            self.wanted[name] = {"a": code}
            script = f"m=/host/been-$HOSTNAME; if [ -e $m ]; then exit 0; fi; touch $m; sleep {pause:.2f}; exit {code}"
            return self.pod(name, {"a": script}, restartPolicy="OnFailure")
        return self.pod(name, {"a": RUN})

    def pod(self, name: str, scripts: dict[str, str], **spec: Any) -> dict[str, object]:
        mount = {"name": "host", "mountPath": "/host"}
        containers = []
        for one, script in scripts.items():
            env = [{"name": "MARK", "value": str(self.agent.dir)}, {"name": "NAME", "value": one}]
            containers.append(container(one, LIFE + script, volumeMounts=[mount], env=env))
        volume = {"name": "host", "hostPath": {"path": str(self.host), "type": "DirectoryOrCreate"}}
        return pod(name, *containers, volumes=[volume], **spec)

    def check(self, name: str, kind: str, found: Pod) -> None:
        if kind == "stops" or found.status is None:
            return
        for one in found.status.container_statuses:
            code = last_code(one, failed=kind == "restarts")
            if code != self.wanted[name][one.name]:
                self.problems.append(f"{name}/{one.name}: {self.wanted[name][one.name]} expected: {one}")


RUN = "trap exit TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 0.1 & wait $!; done"


def last_code(status: ContainerStatus, *, failed: bool) -> int | None:
    """Exit code of its end; with `failed` of the one before that."""
    told = status.last_state if failed else status.state
    return told.terminated.exit_code if told is not None and told.terminated is not None else None


class Images(threading.Thread):
    """An image that is brought in and removed meanwhile."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self.agent = agent
        self.end = threading.Event()
        self.done = 0

    def run(self) -> None:
        cri = self.agent.containerd.cri
        name = "registry.test/churn:1"
        path = self.agent.dir / "churn.tar"
        write_archive(path, [Image(name, files={"/data": os.urandom(2_000_000)})])
        while not self.end.wait(0.05):
            with contextlib.suppress(CriError):
                cri.pull_image(f"oci-archive:{path}").result()
                cri.remove_image(name).result()
                self.done += 1


def marked(mark: str) -> set[int]:
    """Processes whose environment has the mark: all that a container's shell has started, and none of ours."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"NODEVISOR_TEST={mark}\0".encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
    return found


def members(agent: Agent, identity: str) -> set[int]:
    """Processes of a container, by its cgroup."""
    found = [path for top in cgroups(agent.dir.name) for path in directories(top, identity)]
    return {pid for path in found for pid in processes(path)}


def oldest(pids: set[int]) -> int:
    """The container's first process. Its number need not be the lowest: they begin anew at some point."""
    return min(pids, key=_started_at)


def _started_at(pid: int) -> float:
    """Return clock ticks; infinity after its exit."""
    fields = content(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return float(fields[19]) if fields else math.inf


def kill_at_random_moments(eye: Eye) -> int:
    moments, killed, last = random.Random(KILLS), 0, 0
    while killed < KILLS:
        time.sleep(moments.uniform(0, 0.6) if moments.random() < 0.7 else moments.uniform(0, 3))
        row = eye.actors().get("runtime")
        if row is not None and row.pid and row.pid != last:
            last = eye.signal("runtime")
            killed += bool(last)
    return killed


@pytest.mark.timeout(240 + 6 * KILLS)
@pytest.mark.needs("mounts")
def test_no_container_is_lost_doubled_or_orphaned(eye: Eye, tmp_path: Path) -> None:
    agent = eye.agent
    churn, images = Churn(eye, tmp_path / "host"), Images(agent)
    steady = {f"steady{number}" for number in range(STEADY)}
    for name in steady:
        agent.write(name, churn.pod(name, {"a": RUN}))
    wait_for(lambda: eye.ready(*steady), 90, f"the steady pods run; log: {agent.log}")
    before = {identity: oldest(members(agent, identity)) for identity in agent.running()}
    churn.start()
    images.start()
    try:
        killed = kill_at_random_moments(eye)
    finally:
        for thread in (churn, images):
            thread.end.set()
            thread.join(90)
    assert churn.problems == []
    assert churn.names == {}, f"every pod comes to its end; log: {agent.log}"
    wait_for(lambda: eye.ready(*steady), 90, f"only the steady pods are left: {sorted(eye.pods())}; log: {agent.log}")
    wait_for(
        lambda: len(answered(agent.sandboxes) or ()) == STEADY, 60, f"only their sandboxes are left; log: {agent.log}"
    )
    assert {name for name, row in wait_for(eye.actors, 10).items() if row.restarts} == {"runtime"}
    expect_steady(agent, before)
    expect_lives(churn, steady)
    expect_store(agent, eye, before)
    print(f"{killed} kills, {churn.rounds.total()} pods, {images.done} images brought in and removed")


def expect_steady(agent: Agent, before: dict[str, int]) -> None:
    """Check for the same containers by their first processes, complete logs, and no other process."""
    assert set(agent.running()) == set(before)
    for identity, pid in before.items():
        assert pid in members(agent, identity)
    inside = {pid for identity in before for pid in members(agent, identity)}
    leftovers = {pid for pid in marked(str(agent.dir)) - inside if Path(f"/proc/{pid}").exists()}
    wait_for(lambda: not (leftovers & marked(str(agent.dir))), 10, f"processes of no container end: {leftovers}")
    for log in (agent.dir / "logs").glob("*steady*/a/*.log"):
        whole = log.read_text().rpartition("\n")[0]  # they go on writing
        lines = [line.split(" ", 3)[3] for line in whole.splitlines()]
        assert lines == [f"line {number + 1}" for number in range(len(lines))], log


def expect_lives(churn: Churn, steady: set[str]) -> None:
    """Check the number of restarts of each container."""
    lives: Counter[str] = Counter()
    for line in (churn.host / "lives").read_text().splitlines():
        lives[line.split()[0].replace(f"-{churn.agent.node}/", "/")] += 1
    for name in steady:
        assert lives.pop(f"{name}/a") == 1
    for name, codes in churn.wanted.items():
        lived = {one: lives.pop(f"{name}/{one}", 0) for one in ("a", "b")}
        once = 2 if name.startswith("restarts") else 1
        assert {one: count for one, count in lived.items() if count} == dict.fromkeys(
            ["a"] if name.startswith("stops") else codes, once
        ), name
    assert not lives


def expect_store(agent: Agent, eye: Eye, before: dict[str, int]) -> None:
    """On disk, in the kernel and with the monitor there is what the runtime lists, and the next one finds the same."""
    listed = set(agent.sandboxes())
    run, data = agent.run_dir / "runtime", agent.root_dir / "nodevisor/runtime"
    shown = {image.id for image in agent.containerd.cri.list_images().result()}
    agent.kill_actors("runtime", timeout_s=60)
    wait_for(lambda: set(answered(agent.sandboxes) or ()) == listed, 20, "the same sandboxes")
    known = set(agent.containers())
    assert known >= set(before)
    assert {path.name for path in (run / "ns").iterdir()} == listed
    assert {path.name for path in (run / "rootfs").iterdir()} == set(before)
    assert {path.name for path in (run / "oci").iterdir()} == set(before)
    assert {path.name for path in (data / "sandboxes").iterdir()} == listed
    assert {path.name for path in (data / "containers").iterdir()} == known
    wait_for(lambda: not list((data / "trash").iterdir()), 20, "the trash is empty")
    addresses = [agent.containerd.cri.pod_sandbox_status(one).result().status.network.ip for one in listed]
    assert len(set(addresses)) == len(addresses)
    assert {image.id for image in agent.containerd.cri.list_images().result()} == shown
    wait_for(lambda: not list((data / "images/incoming").iterdir()), 20, "nothing is left of broken imports")
