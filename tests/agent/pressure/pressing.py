"""Real pressure on an agent's node: small disks, and pods that take too much of a resource."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proto.node.eviction import GetPressure, Pressure
from proto.node.stats import GetPodUsages, PodUsage
from proto.pods.events import ListEvents
from proto.v1 import Pod
from proto.wire.errors import ActorError
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.api.with_api import SETTINGS
from tests.agent.api_source import ApiSource
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

MIB = 1 << 20
TRANSITION_S = 3.0
PERIOD_S = 1.0
"""Between two looks of eviction, for short tests. The kubelet's 10 s are fixed."""
UNTIL_TOLD = "until test -e /go; do sleep 0.2; done"
"""Shell: wait until `press` lets the hog go on, once its writable layer is measured."""


@contextmanager
def small_disk(image: Path, where: Path, size: int, inodes: int) -> Iterator[Path]:
    """Mount a new ext4 with so many bytes and inodes at `where`."""
    where.mkdir(parents=True, exist_ok=True)
    image.touch()
    os.truncate(image, size)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-N", str(inodes), image], check=True)
    subprocess.run(["mount", "-o", "loop", image, where], check=True)
    (where / "lost+found").rmdir()
    try:
        yield where
    finally:
        # Mounts of volumes may be gone a moment later.
        wait_for(lambda: subprocess.run(["umount", where], capture_output=True, check=False).returncode == 0, 20)
        image.unlink()


@contextmanager
def pressed(containerd: ContainerdInstance, config: Mapping[str, Any], prepare: Any = None) -> Iterator[ApiSource]:
    """Start an agent with these fields of its configuration, and with short periods of eviction."""
    with closing(Agent(containerd, api=True)) as agent:
        configure(agent, config)
        if prepare is not None:
            prepare(agent)
        with short_periods():
            agent.start()
        with closing(ApiSource(agent)) as api:
            yield api


@contextmanager
def short_periods() -> Iterator[None]:
    """Agents that start meanwhile look every PERIOD_S."""
    os.environ[SETTINGS] = msgspec.json.encode({"eviction_monitoring_period_s": PERIOD_S}).decode()
    try:
        yield
    finally:
        del os.environ[SETTINGS]


def configure(agent: Agent, config: Mapping[str, Any]) -> None:
    """Change fields of an agent's configuration before its start."""
    common = {"evictionPressureTransitionPeriod": f"{TRANSITION_S:g}s", "volumeStatsAggPeriod": "1s"}
    agent.config.write_text(yaml.safe_dump({**yaml.safe_load(agent.config.read_text()), **common, **config}))


class Watcher(threading.Thread):
    """Notes the conditions over time. A context manager."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent = agent
        self._over = threading.Event()
        self.conditions: list[tuple[str, ...]] = []
        self.longest_s = 0.0
        """The last conditions but these have lasted so long at most: from the look before they were seen on."""

    def run(self) -> None:
        before = since = 0.0
        with closing(Client(self._agent.run_dir)) as client:
            while not self._over.wait(0.1):
                looked = time.monotonic()
                try:
                    seen: Pressure = client.ask("eviction", GetPressure())
                except ActorError:  # on a machine that is busy; the next look tells
                    continue
                if self.conditions[-1:] != [seen.conditions]:
                    self.longest_s, since = time.monotonic() - since, before
                    self.conditions.append(seen.conditions)
                before = looked

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()


def evictions(agent: Agent) -> dict[str, float]:
    """The count of evictions by signal."""
    return {labels[0]: count for labels, count in agent.counts("eviction", "kubelet_evictions").items() if count}


def press(
    api: ApiSource,
    signal: str,
    condition: str,
    hog: dict[str, Any],
    beside: tuple[dict[str, Any], ...],
    timeout_s: float = 90,
    before_hog: Callable[[], Any] = lambda: None,
    measured: Callable[[PodUsage], bool] | None = None,
) -> str:
    """Let `hog` take the resource of a signal; return its message after checking all that the kubelet promises.

    It goes, and it alone; the condition is set, and cleared after the transition period. `before_hog` may raise. With
    `measured`, a hog that waits with UNTIL_TOLD goes on once that is so of its usage.
    """
    agent, names = api.agent, [one["metadata"]["name"] for one in beside]
    for one in beside:
        api.add(one)
    api.wait_ready(*names)
    running = agent.running()
    before = evictions(agent)
    with Watcher(agent) as watcher:
        wait_for(lambda: watcher.conditions == [()], 30, "no pressure yet")
        before_hog()
        added = api.add(hog)
        if measured is not None:
            let_go_on(agent, added, measured)
        failed = api.wait_phase(hog["metadata"]["name"], "Failed", timeout_s)
        assert failed.status.reason == "Evicted", (failed.status.reason, failed.status.message)
        wait_for(lambda: watcher.conditions == [(), (condition,), ()], 60, "the condition is set and cleared")
        assert watcher.longest_s >= TRANSITION_S - PERIOD_S / 2, "not before the transition period"
    counted = {one: count - before.get(one, 0) for one, count in evictions(agent).items()}
    counted = {one: count for one, count in counted.items() if count}
    assert counted == {signal: 1}, (counted, failed.status.message)
    left = {id_: name for id_, name in agent.running().items() if id_ in running}
    assert left == running, "nothing else ended"
    api.wait_ready(*names, timeout_s=1)
    for name in (*names, hog["metadata"]["name"]):
        api.delete(name, 0)
    api.wait_gone(*names, hog["metadata"]["name"])
    return failed.status.message or ""


def let_go_on(agent: Agent, hog: Pod, measured: Callable[[PodUsage], bool]) -> None:
    """Let the hog go on once its usage is known so far. Runtimes measure writable layers only every 10 or 15 s."""
    with closing(Client(agent.run_dir)) as client:
        ask = GetPodUsages(max_age_s=0.0, with_disk=True)

        def is_measured() -> bool:
            return any(one.pod_uid == hog.metadata.uid and measured(one) for one in client.ask("stats", ask, 20.0).pods)

        wait_for(is_measured, 90, f"the usage of {hog.metadata.name} is measured; log: {agent.log}")
    (identity,) = [id_ for id_, name in agent.running().items() if name == f"{hog.metadata.name}/c"]
    assert agent.containerd.cri.exec_sync(identity, ["touch", "/go"], 20).result().exit_code == 0


def has_bytes(mib: int) -> Callable[[PodUsage], bool]:
    """For `measured`: the writable layer has so many MiB."""
    return lambda usage: usage.writable_layer_bytes >= mib * MIB


def has_inodes(count: int) -> Callable[[PodUsage], bool]:
    """For `measured`: the writable layer has so many inodes."""
    return lambda usage: usage.writable_layer_inodes >= count


def node_reasons(agent: Agent) -> list[str]:
    """Reasons of the node's events, oldest first."""
    with closing(Client(agent.run_dir)) as client:
        found = client.ask("events", ListEvents()).events
    return [one.reason for one in found if one.involved_object.kind == "Node"]


def asking(resource: str, amount: str) -> dict[str, Any]:
    """The field of a container that requests a resource."""
    return {"resources": {"requests": {resource: amount}}}


def volume_pod(name: str, script: str, medium: str = "", **fields: Any) -> dict[str, Any]:
    """A pod with an emptyDir at /v that runs a script and stays."""
    empty = {"medium": medium} if medium else {}
    mounts = [{"name": "v", "mountPath": "/v"}]
    own = container("c", f"{script}; exec sleep 1000", volumeMounts=mounts, **fields)
    return pod(name, own, volumes=[{"name": "v", "emptyDir": empty}])


def write(path: str, mib: int) -> str:
    """Shell: write a file."""
    return f"dd if=/dev/zero of={path} bs=1M count={mib} 2>/dev/null"


def files(directory: str, count: int) -> str:
    """Shell: create files."""
    return f"mkdir {directory}; i=0; while [ $i -lt {count} ]; do : > {directory}/$i; i=$((i+1)); done"
