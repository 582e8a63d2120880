"""kill -9 of the volume actor at random moments while pods with every kind of volume come, restart and go.

NODEVISOR_KILLS is how often it is killed: 200 before a release.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from actors._cri.errors import CriError
from tests.agent.agent import Agent, container, pod
from tests.agent.changing import content
from tests.agent.faults import Eye, condition, expect_nothing
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

KILLS = int(os.environ.get("NODEVISOR_KILLS", "15"))
PODS = 4
NO_BACK_OFF = {"defaults": {"max_restarts": 100_000, "reset_after_s": 0.001, "backoff_cap_s": 0.1}}

SCRIPT = """
trap exit TERM
own='/disk /memory /disk-part /memory-part'
if [ -e /disk/kept ]; then read id < /disk/kept; else
  id=$(cat /proc/sys/kernel/random/uuid)
  echo $id >> /host/ids-$HOSTNAME
  for d in $own; do echo $id > $d/kept; done
fi
while true; do
  for d in $own; do x=; read x < $d/kept; [ "$x" = $id ] || echo "$HOSTNAME $d has '$x'" >> /host/bad; done
  for f in /config/k /secret/k /projected/c /projected/s /projected/labels /downward/labels; do
    y=; read y < $f; [ -n "$y" ] || read y < $f; [ -n "$y" ] || echo "$HOSTNAME $f has '$y'" >> /host/bad
  done
  usleep 20000
done
"""
"""Keeps data in volumes, also across its restarts, and looks whether everything is there. A file may be replaced while
its links are followed; it is not twice in a row."""

LABELS = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
PROJECTED = {
    "sources": [
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "c"}]}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "s"}]}},
        {"downwardAPI": LABELS},
    ]
}


@pytest.fixture
def eye(containerd: ContainerdInstance) -> Iterator[Eye]:
    with closing(Agent(containerd)) as agent:
        (agent.dir / "objects").mkdir()
        write_objects(agent, 0)
        settings = agent.dir / "supervisor.yaml"
        settings.write_text(yaml.safe_dump(NO_BACK_OFF))
        agent.start("--supervisor-config", str(settings), "--objects-dir", str(agent.dir / "objects"))
        eye = Eye(agent)
        with closing(eye.client):
            yield eye


def write_objects(agent: Agent, version: int) -> None:
    kinds = (("ConfigMap", "c", "data"), ("Secret", "s", "stringData"))
    items = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: {"k": f"{version}"}}
        for kind, name, field in kinds
    ]
    temporary = agent.dir / "objects.tmp"
    temporary.write_text(yaml.safe_dump_all(items))
    temporary.rename(agent.dir / "objects/objects.yaml")


def every_plugin(name: str, host: Path) -> dict[str, object]:
    volumes = {
        "disk": {"emptyDir": {}},
        "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        "host": {"hostPath": {"path": str(host), "type": "DirectoryOrCreate"}},
        "config": {"configMap": {"name": "c"}},
        "secret": {"secret": {"secretName": "s"}},
        "projected": {"projected": PROJECTED},
        "downward": {"downwardAPI": LABELS},
    }
    parts = [{"name": one, "mountPath": f"/{one}-part", "subPath": "deep/part"} for one in ("disk", "memory")]
    mounts = [*({"name": one, "mountPath": f"/{one}"} for one in volumes), *parts]
    given = [{"name": one, **source} for one, source in volumes.items()]
    return pod(name, container("c", SCRIPT, volumeMounts=mounts), volumes=given)


class Churn(threading.Thread):
    """One pod that comes, has its container restarted, and goes, over and over. The node's side of its volumes is
    looked at meanwhile: in the container, a mount that the node has lost still shows."""

    def __init__(self, agent: Agent, number: int, host: Path) -> None:
        super().__init__()
        self.agent, self.name, self.host = agent, f"churn{number}", host
        self.random = random.Random(number)
        self.end = threading.Event()
        self.rounds = 0
        self.problems: list[str] = []

    def run(self) -> None:
        eye = Eye(self.agent)
        with closing(eye.client):
            while not self.end.is_set():
                try:
                    self.round(eye)
                except AssertionError as error:
                    self.problems.append(str(error))
                    return

    def round(self, eye: Eye) -> None:
        manifest = self.agent.write(self.name, every_plugin(self.name, self.host))
        wait_for(lambda: self.is_ready(eye), 60, f"{self.name} is ready")
        self.look(eye, self.random.uniform(0, 1))
        if self.random.random() < 0.5:
            self.restart(eye)
            self.look(eye, self.random.uniform(0, 1))
        manifest.unlink()
        wait_for(lambda: self.name not in eye.pods() and eye.all_ready(), 60, f"{self.name} is gone")
        self.rounds += 1

    def is_ready(self, eye: Eye) -> bool:
        found = eye.pods().get(self.name)
        return found is not None and condition(found, "Ready") == "True"

    def look(self, eye: Eye, seconds: float) -> None:
        uid = wait_for(lambda: eye.pods().get(self.name), 30, f"{self.name} is shown").metadata.uid
        volumes = self.agent.root_dir / "pods" / uid / "volumes/kubernetes.io~empty-dir"
        deadline = time.monotonic() + seconds
        while True:  # once at least: what the container has yet to write is waited for
            for name in ("disk/kept", "memory/kept", "disk/deep/part/kept", "memory/deep/part/kept"):
                wait_for(lambda path=volumes / name: content(path), 30, f"{volumes}/{name} is written")
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def restart(self, eye: Eye) -> None:
        found = eye.container(self.name)
        identity = (found.container_id or "").rpartition("/")[2] if found is not None else ""
        if identity:
            try:
                self.agent.containerd.cri.stop_container(identity, 0).result()
            except CriError as error:
                self.problems.append(str(error))
            wait_for(lambda: (one := eye.container(self.name)) and one.restart_count and one.ready, 60, "it is back")


@contextmanager
def changing(agent: Agent) -> Iterator[None]:
    """Meanwhile the objects change every few moments."""
    end = threading.Event()

    def run() -> None:
        version = 0
        while not end.wait(0.2):
            version += 1
            write_objects(agent, version)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.timeout(120 + 4 * KILLS)
def test_nothing_leaks_is_lost_or_goes_while_it_is_used(eye: Eye, tmp_path: Path) -> None:
    churn = [Churn(eye.agent, number, tmp_path / "host") for number in range(PODS)]
    moments = random.Random(KILLS)
    killed = 0
    with changing(eye.agent):
        for one in churn:
            one.start()
        try:
            while killed < KILLS:
                time.sleep(moments.uniform(0, 0.3))
                killed += bool(eye.signal("volume"))
        finally:
            for one in churn:
                one.end.set()
            for one in churn:
                one.join(120)
    assert [problem for one in churn for problem in one.problems] == []
    assert all(one.rounds for one in churn)
    bad = tmp_path / "host/bad"
    assert not bad.exists(), bad.read_text()
    kept = [line for path in (tmp_path / "host").glob("ids-*") for line in path.read_text().splitlines()]
    assert len(kept) == len(set(kept)) == sum(one.rounds for one in churn), "one life of its volumes for each pod"
    expect_nothing(eye, 60)
    rows = eye.actors()
    assert {name: row.restarts for name, row in rows.items() if row.restarts and name != "volume"} == {}
    print(f"{killed} kills, {len(kept)} pods")
