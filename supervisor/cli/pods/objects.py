"""`supervisor objects`: list the ConfigMaps, Secrets and other objects of the node's pods, without their data."""

from __future__ import annotations

import time
from typing import Any

import click

from proto.pods.objects import ListObjects, ObjectList, ObjectRow
from proto.pods.pod_columns import human_duration
from supervisor.cli.common import connect, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.sockets.client import NoSuchActor

HEADERS = ("KIND", "NAMESPACE", "NAME", "KEYS", "PODS", "FILE", "AGE")


@click.command()
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="List only objects of this namespace.")
@output_option("json", "yaml")
def objects(run_dir: str, namespace: str | None, output: str | None) -> None:
    """Show the objects that pods can use, without their data, with their source and the number of their pods.

    These are the objects in --objects-dir, and Secrets and ConfigMaps of the API server that pods refer to. Rejected
    files are listed on stderr.
    """
    with connect(run_dir) as client:
        try:
            found = client.ask("objects", ListObjects())
        except NoSuchActor:
            found = ObjectList()
    rows = [row for row in found.objects if namespace in (None, row.ref.namespace)]
    if output == "json":
        render.echo(render.json_text(plain(found, rows)))
        return
    if output == "yaml":
        render.echo(render.yaml_text(plain(found, rows)))
        return
    if rows:
        now = time.time()
        render.table(HEADERS, [cells(row, now) for row in rows])
    elif found.source:
        render.echo(f"No objects found in {found.source}.", err=True)
    else:
        render.echo("No objects: the agent was started without --objects-dir and without --kubeconfig.", err=True)
    for problem in found.problems:
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        field = f"{problem.field}: " if problem.field else ""
        keeps = "; its last good version stays in use" if problem.keeps_previous else ""
        render.echo(f"cannot use {place}: {field}{problem.problem}{keeps}", err=True)


def cells(row: ObjectRow, now: float) -> tuple[str, ...]:
    """A row of the table."""
    return (
        row.ref.kind,
        row.ref.namespace or "-",
        row.ref.name,
        str(len(row.keys)),
        str(row.used_by),
        f"{row.file}:{row.line}" if row.file else "(API server)",
        human_duration(now - row.changed) if row.file else "-",
    )


def plain(found: ObjectList, rows: list[ObjectRow]) -> dict[str, Any]:
    """The list as plain values, for -o json and yaml."""
    return {
        "source": found.source,
        "objects": [
            {
                "kind": row.ref.kind,
                "namespace": row.ref.namespace,
                "name": row.ref.name,
                "keys": list(row.keys),
                "type": row.secret_type,
                "immutable": row.immutable,
                "pods": row.used_by,
                "file": row.file,
                "line": row.line,
                "changed": row.changed,
            }
            for row in rows
        ],
        "problems": [
            {
                "file": one.file,
                "line": one.line,
                "field": one.field,
                "problem": one.problem,
                "keepsPrevious": one.keeps_previous,
            }
            for one in found.problems
        ],
    }
