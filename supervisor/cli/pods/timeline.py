"""`supervisor timeline [POD]`: the steps of a pod's start as a waterfall, and the totals of each step over all pods."""

from __future__ import annotations

import time
from typing import Any

import click

from proto.pods.pod_workers import GetTimelines, PodTimeline, StepTotal, TimelineStep
from supervisor.cli.common import complete_pod, connect, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render

WIDTH = 40
HEADERS = ("STEP", "CONTAINER", "AT", "TOOK", "", "ERROR")
TOTAL_HEADERS = ("STEP", "COUNT", "MEDIAN", "MOST", "TOTAL")
POD_HEADERS = ("NAMESPACE", "NAME", "READY AFTER", "LONGEST STEP")
RIGHT = frozenset({"AT", "TOOK", "COUNT", "MEDIAN", "MOST", "TOTAL", "READY AFTER"})


@click.command()
@click.argument("pod", default="", shell_complete=complete_pod)
@run_dir_option
@output_option("json")
def timeline(pod: str, run_dir: str, output: str | None) -> None:
    r"""Show the steps of POD's start, from its manifest or API object to its readiness; without POD, of all pods.

    The last 200 starts are recorded, since the start of pod_workers.

    \b
    Example: supervisor timeline web-vm
    """
    with connect(run_dir) as client:
        found = client.ask("pod_workers", GetTimelines(pod=pod))
    if pod and not found.pods:
        raise CommandError(
            f"cannot show the start of pod {pod!r}: none is recorded since pod_workers started; `supervisor timeline` "
            "lists the recorded ones"
        )
    if output == "json":
        shown: dict[str, Any] = render.fields(found)
        render.echo(render.json_text(shown))
        return
    now_ns = time.time_ns()
    if pod:
        for one in found.pods:
            _print_pod(one, now_ns)
    elif found.pods:
        render.table(POD_HEADERS, [pod_row(one) for one in found.pods], RIGHT)
        render.echo()
    if not found.pods:
        render.echo("No start of a pod is recorded.", err=True)
    elif found.totals:
        render.table(TOTAL_HEADERS, [total_row(one) for one in found.totals], RIGHT)


def _print_pod(pod: PodTimeline, now_ns: int) -> None:
    ended_ns = max([pod.ready_ns or now_ns, *(step.ended_ns for step in pod.steps)])
    what = f"ready or finished after {seconds(pod.ready_ns - pod.began_ns)}" if pod.ready_ns else "not ready yet"
    render.echo(f"{pod.namespace}/{pod.name}: {what}")
    steps = sorted(pod.steps, key=lambda one: one.began_ns)
    render.table(HEADERS, [step_row(one, pod.began_ns, ended_ns) for one in steps], RIGHT)
    render.echo()


def step_row(step: TimelineStep, began_ns: int, ended_ns: int) -> tuple[str, ...]:
    """A step with its bar between the start's first and last moment."""
    whole = max(1, ended_ns - began_ns)
    left = round(WIDTH * (step.began_ns - began_ns) / whole)
    right = round(WIDTH * (step.ended_ns - began_ns) / whole)
    bar = (" " * min(left, WIDTH - 1) + "=" * max(1, right - left))[:WIDTH]
    took = seconds(step.ended_ns - step.began_ns)
    return (step.name, step.detail, seconds(step.began_ns - began_ns), took, f"|{bar:<{WIDTH}}|", step.error)


def pod_row(pod: PodTimeline) -> tuple[str, ...]:
    """A pod in the list of all."""
    longest = max(pod.steps, key=lambda one: one.ended_ns - one.began_ns, default=None)
    what = f"{longest.name} {longest.detail}".strip() if longest is not None else ""
    took = f" ({seconds(longest.ended_ns - longest.began_ns)})" if longest is not None else ""
    return (pod.namespace, pod.name, seconds(pod.ready_ns - pod.began_ns) if pod.ready_ns else "", what + took)


def total_row(one: StepTotal) -> tuple[str, ...]:
    """One step over all pods."""
    times = (one.median_s, one.most_s, one.total_s)
    return (one.step, str(one.count), *(seconds(int(value * 1e9)) for value in times))


def seconds(nanos: int) -> str:
    """A duration for people."""
    return f"{nanos / 1e6:.1f}ms" if nanos < 1_000_000_000 else f"{nanos / 1e9:.2f}s"
