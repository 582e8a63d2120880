"""Measures the time to see a container's end, the restart time of a killed actor, and the cost of an idle agent."""

import contextlib
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors._cri.client import Cri
from proto.agent.supervisor import Started
from proto.cri import api_pb2 as pb
from proto.wire.errors import ActorError, ProtocolError
from supervisor.sockets.client import Client
from tests.bench import usage
from tests.bench.agent import Agent

EXITS = 30
ROUNDS = 8
"""Restarts of each actor: below the intensity at which the supervisor would call it degraded."""
ROUND_S = 1.5
"""An actor that was in service for a second is restarted at once again."""
_LATE_S = 5.0
_LOOK_S = 0.005


@dataclass
class Latencies:
    """Milliseconds, in the order of measuring; None where it did not happen within 5 s."""

    idle_percent: float
    """Share of one core, over all processes."""
    idle_by_process_percent: dict[str, float]
    exit_seen_ms: list[float | None] = field(default_factory=list)
    """From SIGKILL of a container's first process to its pod worker's having been told."""
    restarted_ms: list[float | None] = field(default_factory=list)
    """From the same SIGKILL until the runtime has the pod's next container running."""
    restart_ms: dict[str, list[float | None]] = field(default_factory=dict)
    """From SIGKILL of an actor's process to the supervisor's word that the next one is in service, by actor."""
    containers_touched: int = 0
    """Containers that the restarts of actors ended or added. Must be 0."""


def measure(agent: Agent, cri: Cri, idle_seconds: float) -> Latencies:
    """Measure all of it on an agent whose pods all run."""
    time.sleep(2.0)  # the wake of the start
    idle = _idle(agent.process.pid, idle_seconds)
    found = Latencies(round(sum(idle.values()), 3), idle)
    for seen_ms, restarted_ms in _exits(agent, cri):
        found.exit_seen_ms.append(seen_ms)
        found.restarted_ms.append(restarted_ms)
    agent.until(lambda: _all_run(cri, len(list(agent.manifests.iterdir()))), "running all pods again", poll_s=0.2)
    before = _containers(cri)
    found.restart_ms = _restarts(agent)
    time.sleep(2.0)
    found.containers_touched = len(before ^ _containers(cri))
    return found


def percentile(values: Sequence[float | None], part: float) -> float | None:
    """Return the quantile `part` (0 to 1) of the values; None when it falls on a missing value."""
    ordered = sorted(values, key=lambda value: float("inf") if value is None else value)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def _idle(pid: int, seconds: float) -> dict[str, float]:
    before, began = usage.cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began
    used = usage.difference(usage.cpu_s(pid), before)
    return {name: round(100 * value / took_s, 3) for name, value in used.items()}


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
    seen: queue.Queue[tuple[float, str]] = queue.Queue()
    with _follow(agent, lambda client: _tap(client, seen)):
        time.sleep(0.5)  # the subscription's way to the actor
        for container in list(_running(cri))[:EXITS]:
            pid = _pid(cri, container.id)
            _drain(seen)
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            at = _next(seen, lambda item: item[1] == "PodChanged", killed)
            again = _replaced(cri, container, killed)
            yield _milliseconds(killed, at), _milliseconds(killed, again)
            _quiet(seen)


def _replaced(cri: Cri, killed: pb.Container, since: float) -> float | None:
    """When another container runs in its sandbox."""
    running = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    wanted = pb.ContainerFilter(state=running, pod_sandbox_id=killed.pod_sandbox_id)
    while time.monotonic() < since + _LATE_S:
        if any(one.id != killed.id for one in cri.list_containers(wanted).result()):
            return time.monotonic()
        time.sleep(_LOOK_S)
    return None


def _milliseconds(begin: float, end: float | None) -> float | None:
    return None if end is None else round(1000 * (end - begin), 3)


def _tap(client: Client, seen: "queue.Queue[tuple[float, str]]") -> None:
    for tapped in client.tap("pod_workers"):
        seen.put((time.monotonic(), tapped.type))


def _pid(cri: Cri, container_id: str) -> int:
    info: Any = cri.container_status(container_id, verbose=True).result().info
    return int(json.loads(info["info"])["pid"])


# Restarts


def _restarts(agent: Agent) -> dict[str, list[float | None]]:
    seen: queue.Queue[tuple[float, str]] = queue.Queue()
    found: dict[str, list[float | None]] = {row.name: [] for row in agent.client.actors()[2:]}
    with _follow(agent, lambda client: _starts(client, seen)):
        time.sleep(0.5)
        for _ in range(ROUNDS):
            began = time.monotonic()
            for name, figures in found.items():
                figures.append(_restart(agent, name, seen))
            time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))
    return found


def _restart(agent: Agent, name: str, seen: "queue.Queue[tuple[float, str]]") -> float | None:
    pid = next(row.pid for row in agent.client.actors() if row.name == name)
    _drain(seen)
    killed = time.monotonic()
    if pid == 0:
        return None
    os.kill(pid, signal.SIGKILL)
    at = _next(seen, lambda item: item[1] == name, killed)
    return _milliseconds(killed, at)


def _starts(client: Client, seen: "queue.Queue[tuple[float, str]]") -> None:
    for event in client.events():
        if isinstance(event, Started):
            seen.put((time.monotonic(), event.name))


# Following a stream in a thread of its own


@contextlib.contextmanager
def _follow(agent: Agent, follow: Callable[[Client], None]) -> Iterator[None]:
    """Run `follow` with a client of its own. The thread ends with the agent: streams have no other end."""

    def body() -> None:
        with Client(Path(agent.client.run_dir)) as client, contextlib.suppress(ActorError, ProtocolError):
            follow(client)

    threading.Thread(target=body, daemon=True).start()
    yield


def _next(
    seen: "queue.Queue[tuple[float, str]]", wanted: Callable[[tuple[float, str]], bool], since: float
) -> float | None:
    deadline = since + _LATE_S
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            item = seen.get(timeout=left)
            if wanted(item):
                return item[0]
    return None


def _drain(seen: "queue.Queue[tuple[float, str]]") -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            seen.get_nowait()


def _quiet(seen: "queue.Queue[tuple[float, str]]", for_s: float = 0.3) -> None:
    """Return when nothing came for a while, so that the next thing seen belongs to the next kill."""
    deadline = time.monotonic() + _LATE_S
    with contextlib.suppress(queue.Empty):
        while time.monotonic() < deadline:
            seen.get(timeout=for_s)
