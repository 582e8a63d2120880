"""`supervisor pods`: list or watch the pods of the node, as kubectl does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from proto.pods.pod_columns import Columns, columns, is_ready
from proto.v1 import Pod, to_dict
from proto.wire.errors import ActorError
from supervisor.cli.actors.seconds import TIMEOUT
from supervisor.cli.common import (
    complete_pod,
    connect,
    find_pod,
    list_pods,
    output_option,
    pods_not_begun,
    run_dir_option,
)
from supervisor.cli.views import render
from supervisor.cli.views.pod_changes import PodChanges
from supervisor.cli.views.render import Cell
from supervisor.sockets.client import CannotReach, Client

HEADERS = ("NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP")
POLL_S = 0.3
"""Pause between requests of --watch."""


@click.command()
@click.argument("names", metavar="[POD]...", nargs=-1, shell_complete=complete_pod)
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="List only pods of this namespace.")
@output_option("json", "yaml")
@click.option("-w", "--watch", is_flag=True, help="Print a line for each changed pod until interrupted.")
@click.option("--wait", type=TIMEOUT, default=0.0, metavar="SECONDS", help="Wait this long for the agent to start.")
def pods(
    names: tuple[str, ...], run_dir: str, namespace: str | None, output: str | None, watch: bool, wait: float
) -> None:
    """Show pods with their state: all, or the named ones (NAME or NAMESPACE/NAME)."""
    with connect(run_dir) as client:
        if watch:
            _watch(client, names, namespace, output, wait)
            return
        found = _list(client, names, namespace, wait)
        waiting = pods_not_begun(client) if not found and output is None else []
    if output == "json":
        render.echo(render.json_text(pod_list(found)))
    elif output == "yaml":
        render.echo(render.yaml_text(pod_list(found)))
    elif not found:
        for line in waiting or ["No pods found."]:
            render.echo(line, err=True)
    else:
        now = time.time()
        render.table(HEADERS, [_styled(columns(pod, now), pod) for pod in found])


def pod_list(pods: Sequence[Pod]) -> dict[str, Any]:
    """A v1 PodList, as in `kubectl get pods -o json`."""
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod_object(pod) for pod in pods]}


def pod_object(pod: Pod) -> dict[str, Any]:
    """A v1 Pod as plain values, with apiVersion and kind."""
    return {"apiVersion": "v1", "kind": "Pod"} | to_dict(pod)


def _list(client: Client, names: tuple[str, ...], namespace: str | None, wait_s: float) -> list[Pod]:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return _chosen(list_pods(client), names, namespace)
        except CannotReach:
            if time.monotonic() >= deadline:
                raise
            time.sleep(min(0.1, POLL_S))


def _chosen(pods: Sequence[Pod], names: tuple[str, ...], namespace: str | None) -> list[Pod]:
    if names:
        return [find_pod(pods, name, namespace, _node_of(pods)) for name in names]
    return [pod for pod in pods if namespace in (None, pod.metadata.namespace)]


def _node_of(pods: Sequence[Pod]) -> str:
    """The node's name, from the first pod with one."""
    return next((pod.spec.node_name for pod in pods if pod.spec.node_name), "")


def _styled(line: Columns, pod: Pod) -> list[str]:
    return [
        Cell(part, _status_style(line.status, pod)) if field == "status" else part
        for field, part in zip(Columns._fields, line, strict=True)
    ]


def _status_style(status: str, pod: Pod) -> str:
    if status == "Running":
        return "green" if is_ready(pod) else "yellow"
    if status in ("Completed", "Succeeded"):
        return "dim"
    if any(word in status for word in ("BackOff", "Err", "Fail", "Evicted", "Unknown")):
        return "red"
    return "yellow"


# Watching


class _Table:
    """A table that is printed line by line."""

    def __init__(self) -> None:
        self._widths = [max(len(header), least) for header, least in zip(HEADERS, (0, 24, 0, 17, 0, 0, 0), strict=True)]

    def line(self, cells: Sequence[str]) -> str:
        """A line of the table. Columns never get narrower than in the lines before."""
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        return render.join(cells, self._widths, [False] * len(cells))


def _watch(client: Client, names: tuple[str, ...], namespace: str | None, output: str | None, wait_s: float) -> None:
    table, changes = _Table(), PodChanges()
    if output is None:
        render.echo(table.line(HEADERS))
    while True:
        try:
            present = _list(client, (), namespace, wait_s)
        except CannotReach:
            raise
        except ActorError as error:
            render.echo(f"supervisor: {error}; trying again", err=True)
            present = None
        if present is not None:
            node = _node_of(present)
            wanted = [pod for pod in present if not names or _is_named(pod, names, node)]
            for line, pod in changes.since_last(wanted, time.time())[0]:
                _print_change(table, line, pod, output)
        time.sleep(POLL_S)


def _is_named(pod: Pod, names: tuple[str, ...], node: str) -> bool:
    own = {pod.metadata.name, pod.metadata.name.removesuffix(f"-{node}")}
    return bool((own | {f"{pod.metadata.namespace}/{name}" for name in own}).intersection(names))


def _print_change(table: _Table, line: Columns, pod: Pod, output: str | None) -> None:
    if output == "json":
        render.echo(render.json_line(pod_object(pod)))
    elif output == "yaml":
        render.echo("---\n" + render.yaml_text(pod_object(pod)))
    else:
        style = _status_style(line.status, pod).replace("dim", "bright_black")
        render.echo(table.line(line), style=style)
