"""/metrics/resource: CPU and memory of the node, pods and containers, which metrics-server reads. Pure.

Names, labels and timestamps are those of pkg/kubelet/metrics/collectors/resource_metrics.go of Kubernetes 1.36. The
samples carry the time of their reading; the start of a container carries none, since it does not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors._cgroup.figures import Figures
from actors._metrics.text import header, label_text, number
from actors.stats.reading import Reading

_POD = ("pod", "namespace")
_CONTAINER = ("container", *_POD)


class _Series:
    """The lines of one metric."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name = name
        self._lines = [header(name, kind, help_text)]

    def add(self, labels: str, value: float, at: float | None) -> None:
        shown = f"{self.name}{{{labels}}}" if labels else self.name
        when = f" {int(at * 1000)}" if at is not None else ""
        self._lines.append(f"{shown} {number(value)}{when}\n")

    def text(self) -> str:
        return "".join(self._lines) if len(self._lines) > 1 else ""


def text(reading: Reading | None) -> bytes:
    """The whole page; None when nothing could be read, which it says too."""
    error = _Series("resource_scrape_error", "gauge", "1 if the figures could not be had, else 0.")
    error.add("", 1 if reading is None else 0, None)
    series = [] if reading is None else list(_series(reading))
    ordered = sorted([*series, error], key=lambda one: one.name)
    return "".join(one.text() for one in ordered).encode()


def _series(reading: Reading) -> Iterator[_Series]:
    yield from _of([("", reading.node)], "node")
    pods = [(label_text(_POD, (pod.name, pod.namespace)), pod.figures) for pod in reading.pods]
    yield from _of(pods, "pod")
    containers = [
        (label_text(_CONTAINER, (one.identity.name, pod.name, pod.namespace)), one)
        for pod in reading.pods
        for one in pod.containers
    ]
    yield from _of([(labels, one.figures) for labels, one in containers], "container")
    starts = _Series("container_start_time_seconds", "gauge", "Unix time of the container's start.")
    limits = _Series("container_swap_limit_bytes", "gauge", "Swap the container may use.")
    for labels, one in containers:
        starts.add(labels, one.identity.created, None)
        if one.figures.swap_limit_bytes:
            limits.add(labels, one.figures.swap_limit_bytes, one.figures.time)
    yield starts
    yield limits


def _of(rows: list[tuple[str, Figures]], scope: str) -> Iterator[_Series]:
    cpu = _Series(f"{scope}_cpu_usage_seconds_total", "counter", f"CPU time of the {scope}.")
    memory = _Series(f"{scope}_memory_working_set_bytes", "gauge", f"Working set of the {scope}.")
    swap = _Series(f"{scope}_swap_usage_bytes", "gauge", f"Swap the {scope} uses.")
    for labels, own in rows:
        cpu.add(labels, own.cpu_ns / 1e9, own.time)
        memory.add(labels, own.working_set_bytes, own.time)
        swap.add(labels, own.swap_bytes, own.time)
    yield from (cpu, memory, swap)
