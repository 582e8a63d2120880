"""Pods and ConfigMaps of a real API server on the agent, beside bare CRI calls and a bare watch.

`python -m tests.bench.cluster --pods 1,10 --rounds 1`. The part of `make bench` that needs a control plane.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tests.agent.agent import Agent
from tests.bench import floor
from tests.bench.harness import pods
from tests.bench.harness.node import PODS, Node, joined_agent, settled, until, up_and_gone
from tests.bench.reporting.table import print_table
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane

CHANGES = 10
"""Of the ConfigMap, in each round."""
APART_S = 0.2
LOOK_S = 0.002
WATCH_S = 60.0
MAPS = "/api/v1/namespaces/default/configmaps"
MAP = "changing"
MOUNT = {"name": "v", "mountPath": "/v"}


@dataclass(frozen=True)
class Step:
    """One number of pods, up and gone."""

    pods: int
    ready_s: float
    """From the first creation."""
    gone_s: float
    """From the first deletion, until the API server has none."""
    cpu_s: float
    """Of all the agent's processes, up and down."""
    pss_mb: float
    """With all pods running."""
    floor_start_s: float
    """Bare CRI calls for as many pods; the mean of those before and after."""
    floor_stop_s: float


@dataclass(frozen=True)
class Cluster:
    """One round."""

    steps: list[Step]
    file_ms: list[float] = field(default_factory=list)
    """From the update of a ConfigMap to the new content in the file of a running pod's volume."""
    watch_ms: list[float] = field(default_factory=list)
    """From the same update to a bare watch of the ConfigMap."""


def measure(rounds: int, counts: Sequence[int]) -> list[Cluster]:
    """Measure on a containerd of its own."""
    with ContainerdInstance(Path(tempfile.mkdtemp(prefix="nvbench-"))) as containerd:
        return measure_on(containerd, rounds, counts, CHANGES)


def measure_on(containerd: ContainerdInstance, rounds: int, counts: Sequence[int], changes: int) -> list[Cluster]:
    """One agent and one control plane for all rounds."""
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nvbench-")))
        plane = stack.enter_context(ControlPlane())
        agent = stack.enter_context(joined_agent(plane, containerd))
        assert agent.process is not None
        node = settled(Node(agent.process.pid, plane, containerd.cri))
        floor.measure(node.cri, 2, 2, logs)  # the first pods of a containerd are slower
        up_and_gone(node, 1)
        return [_round(node, agent, counts, changes, logs) for _ in range(rounds)]


def _round(node: Node, agent: Agent, counts: Sequence[int], changes: int, logs: Path) -> Cluster:
    found = Cluster([_step(node, count, logs) for count in counts])
    with _pod_with_map(node, agent) as file:
        for number in range(changes):
            file_ms, watch_ms = _change(node, file, f"{number}-{time.monotonic_ns()}")
            found.file_ms.append(file_ms)
            found.watch_ms.append(watch_ms)
            time.sleep(APART_S)
    return found


def _step(node: Node, count: int, logs: Path) -> Step:
    before = floor.measure(node.cri, count, floor.WIDTH, logs)
    times, others = up_and_gone(node, count)
    after = floor.measure(node.cri, count, floor.WIDTH, logs)
    return Step(
        pods=count,
        ready_s=times["create to Ready, s"],
        gone_s=times["delete to gone, s"],
        cpu_s=others["CPU up, s"] + others["CPU gone, s"],
        pss_mb=others["PSS, MB"],
        floor_start_s=(before.start_s + after.start_s) / 2,
        floor_stop_s=(before.stop_s + after.stop_s) / 2,
    )


# ConfigMaps


@contextlib.contextmanager
def _pod_with_map(node: Node, agent: Agent) -> Iterator[Path]:
    """A running pod with the ConfigMap as a volume; the path of its file on the node."""
    node.plane.call("POST", MAPS, {"metadata": {"name": MAP}, "data": {"key": "first"}})
    container = json.loads(pods.manifest(MAP))["spec"]["containers"][0] | {"volumeMounts": [MOUNT]}
    node.create(MAP, containers=[container], volumes=[{"name": "v", "configMap": {"name": MAP}}])
    until(lambda: node.ready() == 1, LOOK_S)
    uid = node.plane.call("GET", f"{PODS}/{MAP}")["metadata"]["uid"]
    try:
        yield agent.root_dir / "pods" / uid / "volumes/kubernetes.io~configmap/v/key"
    finally:
        node.plane.call("DELETE", f"{PODS}/{MAP}", {})
        until(node.gone, LOOK_S)
        node.plane.call("DELETE", f"{MAPS}/{MAP}", {})


def _change(node: Node, file: Path, content: str) -> tuple[float, float]:
    """Milliseconds from an update to the file, and to a bare watch."""
    with Watch(node.plane, content) as watch:
        began = time.monotonic()
        node.plane.call("PUT", f"{MAPS}/{MAP}", {"metadata": {"name": MAP}, "data": {"key": content}})
        until(lambda: file.read_text() == content, LOOK_S)
        changed = time.monotonic()
        watch.seen.wait(WATCH_S)
    return 1000 * (changed - began), 1000 * (watch.at - began)


class Watch:
    """A watch of the ConfigMap that waits for a text. Within `with`, `at` is when it came, once `seen` is set."""

    def __init__(self, plane: ControlPlane, text: str) -> None:
        self.seen, self.at = threading.Event(), float("inf")
        self._text, query = text.encode(), {"watch": "true", "fieldSelector": f"metadata.name={MAP}"}
        self._stream = plane.session.stream(MAPS, query, WATCH_S)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join(WATCH_S)
        self._stream.close()

    def _read(self) -> None:
        lines, ended = self._stream.read()
        while not ended:
            if any(self._text in line for line in lines):
                self.at = time.monotonic()
                self.seen.set()
                return
            select.select([self._stream], [], [], WATCH_S)
            lines, ended = self._stream.read()


def main() -> None:
    """Print what the pods and changes take."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pods", default="1,10,50,100")
    options = parser.parse_args()
    if problem := missing_requirements() or missing_control_plane():
        raise SystemExit(problem)
    rounds = measure(options.rounds, [int(part) for part in options.pods.split(",")])
    headers = ("PODS", "READY S", "GONE S", "CPU S", "PSS MB", "BARE CRI S", "GONE S")
    print_table(headers, [astuple(step) for one in rounds for step in one.steps])
    for one in rounds:
        print("ConfigMap to file, ms:", *(f"{ms:.0f}" for ms in one.file_ms))
        print("and to a bare watch:", *(f"{ms:.0f}" for ms in one.watch_ms))


if __name__ == "__main__":
    main()
