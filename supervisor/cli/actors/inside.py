"""`supervisor state`, `mailbox` and `stacks`: what an actor holds and does. A hung actor answers, too."""

from __future__ import annotations

from typing import Any

import click

from proto.agent.actor import Inspect, ListMailbox, MailboxContent, Stacks
from proto.common.machine import procfs
from proto.wire.errors import AskTimeout
from supervisor.cli.common import complete_actor, connect, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.sockets.client import Client

ASK_S = 5.0
STACKS_S = 0.5
HEADERS = ("TYPE", "FROM", "WAITED", "BYTES")
RIGHT = frozenset({"WAITED", "BYTES"})


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@click.argument("path", default="")
@run_dir_option
@click.option("--depth", type=click.IntRange(0, 8), default=3, show_default=True, help="Levels to show below PATH.")
@output_option("json")
def state(actor: str, path: str, run_dir: str, depth: int, output: str | None) -> None:
    r"""Show a part of ACTOR's state: attributes and keys, without calling any of its code.

    PATH has names and keys: `name.name[key]`. Bytes and what may be secret are hidden; long texts and lists are cut.
    No rule finds every secret in a process's memory, so a console needs the role debug.

    \b
    Example: supervisor state pod_workers desired --depth 1
    """
    with connect(run_dir) as client:
        found = client.ask(actor, Inspect(path=path, depth=depth), ASK_S).value
    if output == "json":
        render.echo(render.json_text(found))
    else:
        for line in state_lines(found):
            render.echo(line)


def state_lines(value: Any, indent: int = 0) -> list[str]:
    """The value as indented `name: value` lines."""
    space = "  " * indent
    if isinstance(value, dict | list) and value:
        named = value.items() if isinstance(value, dict) else ((str(at), one) for at, one in enumerate(value))
        lines = []
        for name, one in named:
            if isinstance(one, dict | list) and one:
                lines += [f"{space}{name}:", *state_lines(one, indent + 1)]
            else:
                lines.append(f"{space}{name}: {_scalar(one)}")
        return lines
    return [space + _scalar(value)]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if value[:1] == "<" else repr(value)
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
def mailbox(actor: str, run_dir: str, output: str | None) -> None:
    r"""Show the message that ACTOR handles, and the waiting ones with sender, time and size.

    \b
    Example: supervisor mailbox pod_workers
    """
    with connect(run_dir) as client:
        found = client.ask(actor, ListMailbox(), ASK_S)
    if output == "json":
        render.echo(render.json_text(render.fields(found)))
    else:
        _print_mailbox(found)


def _print_mailbox(found: MailboxContent) -> None:
    render.echo(f"In its handler: {found.in_flight}, for {found.in_flight_ms:.1f} ms" if found.in_flight else "Idle.")
    if not found.depth:
        render.echo("No message waits.")
        return
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    render.echo(f"Waiting: {found.depth} ({counts})")
    rows = [(one.type, one.source or "itself", f"{one.waited_ms:.1f} ms", str(one.bytes)) for one in found.head]
    render.table(HEADERS, rows, RIGHT)


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
def stacks(actor: str, run_dir: str, output: str | None) -> None:
    r"""Show what each thread of ACTOR does now. Of a stopped process, show the kernel's view.

    \b
    Example: supervisor stacks volume
    """
    with connect(run_dir) as client:
        try:
            text = client.ask(actor, Stacks(), STACKS_S).text
        except AskTimeout:
            text = _kernel_view(client, actor)
    render.echo(render.json_text({"actor": actor, "stacks": text}) if output == "json" else text.rstrip("\n"))


def _kernel_view(client: Client, actor: str) -> str:
    """State and wait channel of each thread, from /proc: for a process whose I/O thread does not answer."""
    if not client.is_local:
        raise AskTimeout(f"{actor} does not answer within {STACKS_S:g} s; run this command on its machine")
    pid = next((row.pid for row in client.actors() if row.name == actor), 0)
    head = f"{actor} does not answer within {STACKS_S:g} s; the kernel shows of process {pid}:"
    return f"{head}\n{procfs.waits(pid) if pid else 'no such process'}"
