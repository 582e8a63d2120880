"""Measures the time to see a container's end, the restart time of a killed actor, and the cost of an idle agent."""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from actors._cri.client import Cri
from proto.cri import api_pb2 as pb
from supervisor.sockets.client import Client
from tests.bench import floor
from tests.bench.harness.agent import Agent
from tests.bench.harness.following import LATE_S, Seen, drain, follow, milliseconds, next_of, quiet
from tests.bench.measurements import idle, restarts
from tests.bench.measurements.idle import Idle
from tests.bench.measurements.restarts import Restarts

EXITS = 30
_LOOK_S = 0.005


@dataclass
class Latencies:
    """Milliseconds, in the order of measuring; None where it did not happen within 5 s."""

    idle: Idle
    exit_seen_ms: list[float | None] = field(default_factory=list)
    """From SIGKILL of a container's first process to its pod worker's having been told."""
    restarted_ms: list[float | None] = field(default_factory=list)
    """From the same SIGKILL until the runtime has the pod's next container running."""
    bare_start_ms: list[float] = field(default_factory=list)
    """Bare CRI calls that create and start a container in a sandbox."""
    restarts: Restarts = field(default_factory=Restarts)
    containers_touched: int = 0
    """Containers that the restarts of actors ended or added. Must be 0."""


def measure(agent: Agent, cri: Cri, idle_seconds: float) -> Latencies:
    """Measure all of it on an agent whose pods all run."""
    found = Latencies(idle.measure(agent.process.pid, idle_seconds))
    found.bare_start_ms = [1000 * one for one in floor.container_starts_s(cri, agent.directory / "floor-logs")]
    for seen_ms, restarted_ms in _exits(agent, cri):
        found.exit_seen_ms.append(seen_ms)
        found.restarted_ms.append(restarted_ms)
    agent.until(lambda: _all_run(cri, len(list(agent.manifests.iterdir()))), "running all pods again", poll_s=0.2)
    before = _containers(cri)
    found.restarts = restarts.measure(agent)
    time.sleep(2.0)
    found.containers_touched = len(before ^ _containers(cri))
    return found


def percentile(values: Sequence[float | None], part: float) -> float | None:
    """Return the quantile `part` (0 to 1) of the values; None when it falls on a missing value."""
    ordered = sorted(values, key=lambda value: float("inf") if value is None else value)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def _running(cri: Cri) -> Sequence[pb.Container]:
    state = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    return cri.list_containers(pb.ContainerFilter(state=state)).result()


def _all_run(cri: Cri, count: int) -> bool:
    return len(_running(cri)) >= count


def _containers(cri: Cri) -> set[tuple[str, int]]:
    return {(container.id, container.state) for container in cri.list_containers().result()}


# Exits


def _exits(agent: Agent, cri: Cri) -> Iterator[tuple[float | None, float | None]]:
    """Milliseconds until each exit is seen, and until its container is replaced.

    Kill one container after the other, each once: the first restart of a container is immediate."""
    seen = follow(agent, _tap)
    for container in list(_running(cri))[:EXITS]:
        pid = _pid(cri, container.id)
        drain(seen)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        at = next_of(seen, "PodChanged", killed)
        again = _replaced(cri, container, killed)
        yield milliseconds(killed, at), milliseconds(killed, again)
        quiet(seen)


def _replaced(cri: Cri, killed: pb.Container, since: float) -> float | None:
    """When another container runs in its sandbox."""
    running = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    wanted = pb.ContainerFilter(state=running, pod_sandbox_id=killed.pod_sandbox_id)
    while time.monotonic() < since + LATE_S:
        if any(one.id != killed.id for one in cri.list_containers(wanted).result()):
            return time.monotonic()
        time.sleep(_LOOK_S)
    return None


def _tap(client: Client, seen: Seen) -> None:
    for tapped in client.tap("pod_workers"):
        seen.put((time.monotonic(), tapped.type))


def _pid(cri: Cri, container_id: str) -> int:
    info: Any = cri.container_status(container_id, verbose=True).result().info
    return int(json.loads(info["info"])["pid"])
