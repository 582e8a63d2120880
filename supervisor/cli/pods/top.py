"""`supervisor top`: show CPU and memory usage of pods, containers and the node, as kubectl top does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from proto.common import untrusted
from proto.node.stats import GetSummary
from proto.node.summary import Container, Node, Summary
from supervisor.cli.common import connect, list_pods, output_option, run_dir_option
from supervisor.cli.views import render

if TYPE_CHECKING:
    from proto.v1 import Pod

SUMMARY_S = 20.0
INTERVAL_S = 1.0
"""Pause between the tables of --watch."""
NO_FIGURES = (
    "No figures for {count} pods: none of their containers runs, or they have no cgroups, as always at isolation level "
    "3 of the embedded runtime; see them with `supervisor pods`."
)
POD_HEADERS = ("NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)")
CONTAINER_HEADERS = ("NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)")
NODE_HEADERS = ("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)")
RIGHT = frozenset({"CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"})


class Use(NamedTuple):
    """Present CPU and memory usage. `nano_cores` is None until there are two readings."""

    nano_cores: int | None
    memory_bytes: int

    def plus(self, other: Use) -> Use:
        """The sum; an unknown CPU usage counts as none."""
        known = [one for one in (self.nano_cores, other.nano_cores) if one is not None]
        return Use(sum(known) if known else None, self.memory_bytes + other.memory_bytes)


class Line(NamedTuple):
    """A row of the table: names and usage."""

    names: tuple[str, ...]
    use: Use


@click.command()
@click.argument("what", type=click.Choice(["pods", "node", "actors"]), default="pods")
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="Show only pods of this namespace.")
@click.option("--containers", is_flag=True, help="Show a line for each container of the pods.")
@click.option("--sort-by", type=click.Choice(["name", "cpu", "memory"]), default="name", show_default=True)
@click.option("-w", "--watch", is_flag=True, help="Measure again and again, until Ctrl-C.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Measure N times.")
@output_option("json")
@click.pass_context
def top(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: click.Context,
    what: str,
    run_dir: str,
    namespace: str | None,
    containers: bool,
    sort_by: Literal["name", "cpu", "memory"],
    watch: bool,
    count: int | None,
    output: str | None,
) -> None:
    r"""Show the CPU and memory usage of pods, of the node, or of the agent's actors.

    The first answer takes a second, because CPU usage needs two readings. Memory is the working set; of actors the
    proportional set size. Of actors, the mailbox and the messages a second are shown, too.

    \b
    Example: supervisor top actors --watch --sort-by cpu
    """
    _refuse_others(ctx, what)
    times = count if watch or count else 1
    if what == "actors":
        from supervisor.cli.actors.top import top_actors  # noqa: PLC0415 - of processes, not of pods

        top_actors(run_dir, sort_by, output, times)
        return
    shown = 0
    with connect(run_dir) as client:
        while times is None or shown < times:
            if shown:
                time.sleep(INTERVAL_S)
            shown += 1
            data = client.ask("stats", GetSummary(only_cpu_and_memory=True), SUMMARY_S).data
            found = untrusted.decode_json(data, Summary)
            if times != 1 and output is None and render.is_terminal():
                click.clear()
            if what == "node":
                _show_node(found, output, times)
            else:
                lines = ordered(pod_lines(found, namespace, containers=containers), sort_by)
                pods = [] if lines or output else list_pods(client)
                _show_pods(CONTAINER_HEADERS if containers else POD_HEADERS, lines, pods, namespace, output, times)


_OF_PODS = {"namespace": "-n", "containers": "--containers"}


def _refuse_others(ctx: click.Context, what: str) -> None:
    """Raise click.UsageError for an option that has no meaning for the node or the actors."""
    others = {"pods": {}, "actors": _OF_PODS, "node": _OF_PODS | {"sort_by": "--sort-by"}}[what]
    for name, option in others.items():
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} has no meaning for `top {what}`.", ctx)


def _text(times: int | None) -> Callable[[Any], str]:
    """JSON in several lines for one measurement, else a line for each."""
    return render.json_text if times == 1 else render.json_line


def _show_pods(
    headers: tuple[str, ...],
    lines: list[Line],
    pods: Sequence[Pod],
    namespace: str | None,
    output: str | None,
    times: int | None,
) -> None:
    if output == "json":
        render.echo(_text(times)([plain(headers, line) for line in lines]))
    elif lines:
        render.table(headers, [[*line.names, cores(line.use), mebibytes(line.use)] for line in lines], RIGHT)
    elif count := sum(namespace in (None, pod.metadata.namespace) for pod in pods):
        render.echo(NO_FIGURES.format(count=count), err=True)
    else:
        render.echo("No pods found.", err=True)


def pod_lines(found: Summary, namespace: str | None, *, containers: bool) -> list[Line]:
    """A row for each pod, with the sum of its containers, or a row for each container."""
    lines = []
    for pod in found.pods:
        ref = pod.pod_ref
        if namespace not in (None, ref.namespace):
            continue
        own = [Line((ref.namespace, ref.name, one.name), use_of(one)) for one in pod.containers]
        if containers:
            lines += own
            continue
        total = Use(None, 0)
        for line in own:
            total = total.plus(line.use)
        lines.append(Line((ref.namespace, ref.name), total))
    return lines


def use_of(one: Container | Node) -> Use:
    """The usage in a container's or the node's statistics."""
    nano_cores = one.cpu.usage_nano_cores if one.cpu is not None else None
    return Use(nano_cores, (one.memory.working_set_bytes or 0) if one.memory is not None else 0)


def ordered(lines: list[Line], by: Literal["name", "cpu", "memory"]) -> list[Line]:
    """The rows by name, or by usage with the largest first."""
    match by:
        case "cpu":
            return sorted(lines, key=lambda line: (-(line.use.nano_cores or 0), line.names))
        case "memory":
            return sorted(lines, key=lambda line: (-line.use.memory_bytes, line.names))
        case _:
            return sorted(lines, key=lambda line: line.names)


def cores(use: Use) -> str:
    """Thousandths of a core, rounded up as in kubectl; empty: unknown."""
    return "" if use.nano_cores is None else f"{-(-use.nano_cores // 1_000_000)}m"


def mebibytes(use: Use) -> str:
    """Memory in kubectl's format."""
    return f"{use.memory_bytes >> 20}Mi"


def plain(headers: tuple[str, ...], line: Line) -> dict[str, Any]:
    """The row as plain values with exact figures, for -o json."""
    names = dict(zip((header.lower() for header in headers), line.names, strict=False))
    return names | {"cpuNanoCores": line.use.nano_cores, "memoryBytes": line.use.memory_bytes}


def _show_node(found: Summary, output: str | None, times: int | None) -> None:
    node = found.node
    use = use_of(node)
    capacity = use.memory_bytes + ((node.memory.available_bytes or 0) if node.memory is not None else 0)
    if output == "json":
        render.echo(_text(times)(plain(NODE_HEADERS, Line((node.node_name,), use)) | {"memoryCapacityBytes": capacity}))
        return
    cpus = os.cpu_count() or 1  # the agent runs on this machine
    of_cpu = "" if use.nano_cores is None else f"{round(use.nano_cores / cpus / 1e7)}%"
    of_memory = f"{round(100 * use.memory_bytes / capacity)}%" if capacity else ""
    render.table(NODE_HEADERS, [[node.node_name, cores(use), of_cpu, mebibytes(use), of_memory]], RIGHT)
