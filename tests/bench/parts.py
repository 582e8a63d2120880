"""The parts of `make bench`: what each measures, what it needs, and how it comes to its figures."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from actors._cri.client import Cri
from tests.bench import cluster, floor
from tests.bench.harness import agent
from tests.bench.measurements import bus, latency, probes, scale, service, streams
from tests.bench.reporting import figures
from tests.bench.reporting.report import Report, Step
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import missing_control_plane

SINGLES = 5
"""Single pods, one after the other: an agent's first pod is slower, as a runtime's is. `service` measures the first."""
Found = dict[str, list[float]]
"""By name of the figure: the values of all rounds."""


class Part(NamedTuple):
    """A part that `--parts` selects."""

    says: str
    measure: Callable[[argparse.Namespace, list[Report]], Found]
    """With the options of `python -m tests.bench`. Reports are added to the list."""
    missing: Callable[[], str] = lambda: ""
    """Says which requirement the machine lacks, and what to do; empty when it has all."""


def measure(parts: Collection[str], options: argparse.Namespace) -> tuple[Found, list[Report]]:
    """The figures of these parts by name, and the reports of the part `pods`."""
    found: Found = {}
    reports: list[Report] = []
    for name, part in PARTS.items():
        if name in parts:
            progress(f"{part.says} ...")
            found |= part.measure(options, reports)
    return found, reports


def progress(text: str) -> None:
    """Say on stderr what goes on."""
    print(text, file=sys.stderr, flush=True)


def numbers(text: str) -> list[int]:
    """`1,10,50`."""
    return [int(part) for part in text.split(",")]


def _pods(options: argparse.Namespace, reports: list[Report]) -> Found:
    for number in range(options.rounds):
        progress(f"round {number + 1} of {options.rounds}")
        reports.append(run(options.pods, options.idle_seconds))
    return figures.of_pods(reports)


def run(counts: list[int], idle_seconds: float) -> Report:
    """Measure each number of pods, floor and agent in turn, since a machine's speed changes over minutes."""
    directory = Path(tempfile.mkdtemp(prefix="nvbench-"))
    with ContainerdInstance(directory) as containerd:
        floor.measure(containerd.cri, 2, 2, directory / "floor-logs")  # the first pods of a containerd are slower
        report = Report()
        for number, count in enumerate(counts, 1):
            last = report if number == len(counts) else None
            report.steps.append(_step(containerd.cri, directory, count, last, idle_seconds))
    return report


def _step(cri: Cri, directory: Path, count: int, last: Report | None, idle_seconds: float) -> Step:
    def with_all_running(running: agent.Agent) -> None:
        if last is not None:
            progress(f"{count} pods: idle, exits, restarts ...")
            last.latencies = latency.measure(running, cri, idle_seconds)

    times = SINGLES if count == 1 else 1
    logs = directory / "floor-logs"
    progress(f"{count} pods: bare CRI ...")
    before = floor.measure_often(cri, count, logs, times)
    progress(f"{count} pods: agent ...")
    ours = agent.measure(cri, directory, count, with_all_running, times)
    progress(f"{count} pods: bare CRI again ...")
    after = floor.measure_often(cri, count, logs, times)
    return Step([before, after], ours)


def _bus(options: argparse.Namespace, _: list[Report]) -> Found:
    return figures.of_bus(bus.measure(options.rounds))


def _scale(options: argparse.Namespace, _: list[Report]) -> Found:
    return figures.of_scale([scale.measure(options.scale_pods) for _ in range(options.rounds)])


def _probes(options: argparse.Namespace, _: list[Report]) -> Found:
    handlers: tuple[probes.Handler, ...] = ("http", "exec")
    return figures.of_probes(probes.measure(one) for _ in range(options.rounds) for one in handlers)


def _streams(options: argparse.Namespace, _: list[Report]) -> Found:
    return figures.of_streams(streams.measure(options.rounds))


def _service(options: argparse.Namespace, _: list[Report]) -> Found:
    return figures.of_service(service.measure(max(options.pods), options.idle_seconds) for _ in range(options.rounds))


def _cluster(options: argparse.Namespace, _: list[Report]) -> Found:
    return figures.of_cluster(cluster.measure(options.rounds, options.pods))


def _missing_cluster() -> str:
    return missing_requirements() or missing_control_plane()


PARTS: Mapping[str, Part] = {
    "pods": Part("pods on a private containerd, beside bare CRI calls", _pods, missing_requirements),
    "bus": Part("two actors, beside bare pyzmq with msgpack", _bus),
    "scale": Part("pods on a runtime that does nothing", _scale),
    "probes": Part("probes each second on a runtime that does nothing", _probes),
    "streams": Part("logs, exec and port-forward, beside the runtime's own", _streams, missing_requirements),
    "service": Part("start to the first pod, idle without pods, takeover", _service, missing_requirements),
    "cluster": Part("pods and ConfigMaps of a real API server", _cluster, _missing_cluster),
}
