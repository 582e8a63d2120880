"""/metrics/resource: CPU and memory of the node, pods and containers, which metrics-server reads. Pure.

Names, labels and timestamps are those of pkg/kubelet/metrics/collectors/resource_metrics.go of Kubernetes 1.36. The
samples carry the time of their reading; the start of a container carries none, since it does not change. Pods of which
no container runs are left out, as in /stats/summary. Labels have no UID, and a page must not have a series twice. So of
pods with the same namespace and name only the youngest is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actors._cgroup.figures import Figures
from actors._metrics.text import label_text
from actors.stats.pages.series import series
from actors.stats.reading import PodReading, Reading

_POD = ("pod", "namespace")
_CONTAINER = ("container", *_POD)


def text(reading: Reading | None) -> bytes:
    """The whole page. None for a reading that failed: the page has only the error metric."""
    help_text = "1 if the figures could not be had, else 0."
    error = series("resource_scrape_error", "gauge", help_text, [("", reading is None, None)])
    found = [error] if reading is None else [error, *_series(reading)]
    return "".join(sorted(found)).encode()  # each begins with its name


def _series(reading: Reading) -> Iterator[str]:
    shown = _youngest(pod for pod in reading.pods if pod.containers)
    pods = [(label_text(_POD, (pod.name, pod.namespace)), pod.figures) for pod in shown]
    containers = [
        (label_text(_CONTAINER, (one.identity.name, pod.name, pod.namespace)), one)
        for pod in shown
        for one in pod.containers
    ]
    yield from _scope("node", [("", reading.node)])
    yield from _scope("pod", pods)
    yield from _scope("container", [(labels, one.figures) for labels, one in containers])
    # The kubelet leaves out times whose whole seconds are 0 or less.
    starts = [(labels, one.identity.created, None) for labels, one in containers if one.identity.created >= 1]
    yield series("container_start_time_seconds", "gauge", "Unix time of the container's start.", starts)
    limits = [
        (labels, one.figures.swap_max_bytes, one.figures.time)
        for labels, one in containers
        if one.figures.swap_max_bytes is not None
    ]
    yield series("container_swap_limit_bytes", "gauge", "Swap the container may use.", limits)


def _youngest(pods: Iterable[PodReading]) -> list[PodReading]:
    """Return one pod for each namespace and name. A pod deleted by force may still run beside its successor."""
    by_name = {(pod.namespace, pod.name): pod for pod in sorted(pods, key=lambda pod: pod.started)}
    return list(by_name.values())


def _scope(scope: str, rows: list[tuple[str, Figures]]) -> Iterator[str]:
    cpu = [(labels, own.cpu_ns / 1e9, own.time) for labels, own in rows]
    memory = [(labels, own.working_set_bytes, own.time) for labels, own in rows]
    swap = [(labels, own.swap_bytes, own.time) for labels, own in rows]
    yield series(f"{scope}_cpu_usage_seconds_total", "counter", f"CPU time of the {scope}.", cpu)
    yield series(f"{scope}_memory_working_set_bytes", "gauge", f"Working set of the {scope}.", memory)
    yield series(f"{scope}_swap_usage_bytes", "gauge", f"Swap the {scope} uses.", swap)
