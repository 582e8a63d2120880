"""`supervisor tap` and `events --processes`: follow an actor's messages, or the starts and ends of processes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import TypeVar

import click

from proto.agent.supervisor import Exited, Note, PeerStates, Started
from proto.common.safe_text import one_line
from proto.wire.message import Message
from supervisor.cli.common import complete_actor, count_option, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.sockets.client import Client, Tapped

T = TypeVar("T")

LEVEL_COLOURS = {"warning": "yellow", "error": "red"}


def _first(count: int | None, stream: Iterable[T]) -> Iterable[T]:
    return itertools.islice(stream, count)


def follow_processes(run_dir: str, output: str | None, count: int | None) -> None:
    """Print starts, ends and remarks of the supervisor as they occur."""
    with Client(run_dir) as client:
        for event in _first(count, client.events()):
            if output is not None:  # a JSON object on one line is YAML too
                click.echo(render.json_line({"event": type(event).__name__} | render.fields(event)))
            else:
                click.echo(f"{_clock()}  {event_text(event)}")


def event_text(event: Message) -> str:
    """One event as a line for people."""
    match event:
        case PeerStates():
            peers = (f"{peer.name} #{peer.incarnation}{'' if peer.ready else ' (not ready)'}" for peer in event.peers)
            return f"peers    {', '.join(peers)}"
        case Started():
            return f"started  {render.styled(event.name, 'green')} #{event.incarnation}"
        case Exited():
            return f"exited   {render.styled(event.name, 'red')} #{event.incarnation}: {one_line(event.reason)}"
        case Note():
            level = render.styled(event.level, LEVEL_COLOURS.get(event.level, "cyan"))
            return f"{level:<8} {one_line(event.actor)}: {one_line(event.text)}"
        case _:
            return repr(event)


@click.command()
@click.argument("actor", shell_complete=complete_actor)
@run_dir_option
@output_option("json")
@count_option
def tap(actor: str, run_dir: str, output: str | None, count: int | None) -> None:
    """Follow the messages that ACTOR handles. The actor reports them only to followers."""
    with Client(run_dir) as client:
        for tapped in _first(count, client.tap(actor)):
            click.echo(render.json_line(tapped.record) if output == "json" else f"{_clock()}  {tap_text(tapped)}")


def tap_text(tapped: Tapped) -> str:
    """One handled message as a line for people."""
    record = tapped.record
    sender = f"{record.get('source', '?')} #{record.get('incarnation', 0)}"
    size = f"{record['bytes']} bytes, " if "bytes" in record else ""
    line = one_line(
        f"{tapped.type:<16} from {sender:<16} {size}waited {record.get('queued_ms', 0):.2f} ms, "
        f"took {record.get('handled_ms', 0):.2f} ms"
    )
    return line + (f" {render.styled('FAILED', 'red')}" if record.get("failed") else "")


def _clock() -> str:
    now = time.time()
    return time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"
