"""`supervisor events`: list or follow events of pods, the node and the agent's processes, as kubectl does."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from proto.v1 import Event, to_dict
from proto.wire.errors import ActorDead
from supervisor.cli.common import complete_subject, connect, count_option, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.cli.views.event_table import HEADERS, About, cells, is_about, ordered, parse_about
from supervisor.cli.views.render import Cell
from supervisor.sockets.client import Client

WAIT_S = 30.0
"""Time that a request of --watch waits for an event."""
TYPES = ("Normal", "Warning")


def _about(_ctx: click.Context, _param: click.Parameter, value: str | None) -> About:
    try:
        return parse_about(value) if value else About()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return complete_subject(ctx, param, incomplete, ("pod/", "node/", "actor/"))


def _types(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...]:
    types = tuple(word.strip().capitalize() for word in value.split(",")) if value else TYPES
    unknown = [word for word in types if word not in TYPES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is neither Normal nor Warning")
    return types


@click.command()
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="List only this namespace. The node's events are in default.")
@click.option("-A", "--all-namespaces", is_flag=True, expose_value=False, help="The default, accepted as by kubectl.")
@click.option(
    "--for",
    "about",
    metavar="KIND/NAME",
    callback=_about,
    shell_complete=_complete,
    help="Only events of pod/NAME, node/NAME, actor/NAME.",
)
@click.option("--types", metavar="TYPE[,TYPE]", callback=_types, help="List only these types: Normal, Warning.")
@click.option("-w", "--watch", is_flag=True, help="Print further events until interrupted.")
@click.option("--processes", is_flag=True, help="Follow the starts and ends of the agent's processes instead.")
@output_option("json", "yaml")
@count_option
def events(
    run_dir: str,
    namespace: str | None,
    about: About,
    types: tuple[str, ...],
    watch: bool,
    processes: bool,
    output: str | None,
    count: int | None,
) -> None:
    """Show events of pods, the node and the agent's own processes (actor/NAME), oldest first.

    Events are kept for an hour after their last repeat. With --watch or --count, new events follow.
    """
    if processes:
        from supervisor.cli.streams.tap import follow_processes  # noqa: PLC0415 - the other stream

        follow_processes(run_dir, output, count)
        return

    def wanted(found: Iterable[Event]) -> list[Event]:
        return ordered(
            one
            for one in found
            if one.type in types and namespace in (None, one.metadata.namespace) and is_about(one, about)
        )

    with connect(run_dir) as client:
        if watch or count:
            batches = (wanted(batch) for batch in _changes(client))
            _follow(itertools.islice(itertools.chain.from_iterable(batches), count), output)
            return
        found = wanted(next(_changes(client)))
    _print(found, output)


def list_events(client: Client) -> tuple[Event, ...]:
    """Every stored event."""
    return next(_changes(client))


def _changes(client: Client) -> Iterator[tuple[Event, ...]]:
    """All stored events, then new and repeated ones, across restarts of the actor."""
    from proto.pods.events import ListEvents  # noqa: PLC0415 - loads the API types, which most commands do without

    answer = _ask(client, ListEvents())
    yield answer.events
    while True:
        answer = _ask(client, ListEvents(after=answer.revision, wait_s=WAIT_S))
        yield answer.events


def _ask(client: Client, request: Any) -> Any:
    while True:
        try:
            return client.ask("events", request, WAIT_S + 10.0)
        except ActorDead:
            continue  # ask again: the request only reads, and the next incarnation has the stored events


def _print(found: Sequence[Event], output: str | None) -> None:
    if output is not None:
        plain = {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": [to_dict(one) for one in found]}
        render.echo(render.json_text(plain) if output == "json" else render.yaml_text(plain))
    elif not found:
        render.echo("No events found.", err=True)
    else:
        now = time.time()
        render.table(HEADERS, [_styled(cells(one, now), one) for one in found])


def _follow(stream: Iterable[Event], output: str | None) -> None:
    widths = [max(len(header), least) for header, least in zip(HEADERS, (0, 9, 7, 10, 24, 0), strict=True)]
    if output is None:
        render.echo(render.join(HEADERS, widths, [False] * len(HEADERS)))
    for one in stream:
        if output == "json":
            render.echo(render.json_line(to_dict(one)))
        elif output == "yaml":
            render.echo("---\n" + render.yaml_text(to_dict(one)))
        else:
            line = cells(one, time.time())
            widths = [*map(max, widths[:-1], map(len, line)), 0]
            text = render.join(line, widths, [False] * len(line))
            render.echo(text, style="yellow" if one.type == "Warning" else "")


def _styled(line: Sequence[str], event: Event) -> list[str]:
    return [Cell(part, "yellow" if event.type == "Warning" and part == event.type else "") for part in line]
