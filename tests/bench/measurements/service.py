"""An agent's start to its first pod, its idle without pods, and the takeover of a killed agent's pods.

Floors of the same run: bare CRI calls for one pod, and the reads of all sandboxes and containers by bare CRI.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from actors._cri.client import Cri
from proto.pods.pod_columns import is_ready
from tests.bench import floor
from tests.bench.harness import pods, usage
from tests.bench.harness.agent import Agent
from tests.bench.measurements import idle
from tests.bench.measurements.idle import Idle
from tests.containerd import ContainerdInstance

POLL_S = 0.02


@dataclass(frozen=True)
class Service:
    """Seconds from the start of `supervisor start`, and what belongs to them."""

    in_service_s: float
    """Until every actor is ready."""
    first_pod_s: float
    """Until the pod of a manifest that was there before is Ready."""
    bare_pod_s: float
    """Bare CRI calls for one pod."""
    idle: Idle
    """Without pods."""
    pss_mb: float
    """Of all the agent's processes without pods."""
    pods: int
    takeover_s: float
    """With so many pods running, after SIGKILL of the supervisor: until all are Ready again."""
    bare_reads_s: float
    """Bare CRI calls that list sandboxes and containers and read the status of each."""
    containers_touched: int
    """Containers that the takeover ended or added. Must be 0."""


def measure(count: int, idle_seconds: float) -> Service:
    """Measure all of it on a containerd of its own."""
    with ContainerdInstance(Path(tempfile.mkdtemp(prefix="nvbench-"))) as containerd:
        return measure_on(containerd.cri, count, idle_seconds)


def measure_on(cri: Cri, count: int, idle_seconds: float) -> Service:
    """The same on a runtime without pods."""
    with tempfile.TemporaryDirectory(prefix="nvbench-") as name:
        directory = Path(name)
        floor.measure(cri, 2, 2, directory / "logs")  # the first pods of a containerd are slower
        bare_pod_s = floor.measure(cri, 1, 1, directory / "logs").start_s
        agent = Agent(cri.endpoint, directory, settle_s=0.0)
        pods.write(agent.manifests, 1)
        with agent:
            agent.until(lambda: _ready(agent) == 1, "running its first pod", poll_s=POLL_S)
            first_pod_s = time.monotonic() - agent.started
            in_service_s = agent.in_service - agent.started
            agent.remove_all(cri)
            resting = idle.measure(agent.process.pid, idle_seconds)
            pss_mb = sum(usage.pss_mb(agent.process.pid).values())
            taken_over = _takeover(agent, cri, count)
    return Service(in_service_s, first_pod_s, bare_pod_s, resting, pss_mb, count, *taken_over)


def _takeover(agent: Agent, cri: Cri, count: int) -> tuple[float, float, int]:
    """Seconds of the takeover and of the bare reads, and the containers touched."""
    agent.add(count)
    before, bare_reads_s = _containers(cri), _read_all(cri)
    agent.kill()
    agent.start()
    agent.until(lambda: _ready(agent) == count, f"running all of {count} pods again", poll_s=POLL_S)
    takeover_s = time.monotonic() - agent.started
    touched = len(before ^ _containers(cri))
    agent.remove_all(cri)
    return takeover_s, bare_reads_s, touched


def _ready(agent: Agent) -> int:
    return sum(map(is_ready, agent.pods()))


def _read_all(cri: Cri) -> float:
    """Seconds of the reads, some statuses at a time."""
    began = time.monotonic()
    with ThreadPoolExecutor(floor.WIDTH) as threads:
        list(threads.map(lambda one: cri.pod_sandbox_status(one.id).result(), cri.list_pod_sandbox().result()))
        list(threads.map(lambda one: cri.container_status(one.id).result(), cri.list_containers().result()))
    return time.monotonic() - began


def _containers(cri: Cri) -> set[tuple[str, int]]:
    return {(container.id, container.state) for container in cri.list_containers().result()}
