"""`supervisor tap` and `events --processes`: follow an actor's messages, or the starts and ends of processes."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import click

from proto.agent.supervisor import Exited, Note, PeerStates, Started
from proto.common.safe_text import one_line
from proto.wire.message import Message
from supervisor.cli.common import complete_actor, connect, count_option, output_option, run_dir_option
from supervisor.cli.views import render
from supervisor.sockets.client import Tapped

T = TypeVar("T")

LEVEL_COLOURS = {"warning": "yellow", "error": "red"}


def _first(count: int | None, stream: Iterable[T]) -> Iterable[T]:
    return itertools.islice(stream, count)


def follow_processes(run_dir: str, output: str | None, count: int | None) -> None:
    """Print starts, ends and remarks of the supervisor as they occur."""
    with connect(run_dir) as client:
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


class Filter(NamedTuple):
    """Selects handled messages."""

    senders: str = ""
    """A sender's name; empty: any."""
    types: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    slower_ms: float = 0.0
    """The least sum of waiting and handling time."""

    def takes(self, tapped: Tapped) -> bool:
        """True when the message is to be shown."""
        record = tapped.record
        if self.senders and record.get("source") != self.senders:
            return False
        if self.types and tapped.type not in self.types:
            return False
        if record.get("queued_ms", 0.0) + record.get("handled_ms", 0.0) < self.slower_ms:
            return False
        return self.pattern is None or bool(self.pattern.search(tap_text(tapped)))


def route_of(text: str) -> tuple[str, str]:
    """Sender and receiver of `ACTOR`, `FROM->TO` and `FROM->`; empty: any."""
    sender, arrow, receiver = text.partition("->")
    return (sender.strip(), receiver.strip()) if arrow else ("", sender.strip())


class Duration(click.ParamType[float]):
    """A time such as 50ms, in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The milliseconds. Fails for other text."""
        found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|)", str(value))
        if found is None:
            self.fail(f"{value!r} is no time; write 50ms or 1.5s", param, ctx)
        return float(found[1]) * {"us": 0.001, "ms": 1.0, "": 1.0, "s": 1000.0}[found[2]]


def _pattern(_: click.Context, __: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from error


@click.command()
@click.argument("route", metavar="[ACTOR | FROM->TO]", default="", shell_complete=complete_actor)
@run_dir_option
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only messages of this type; may be repeated.")
@click.option("--grep", "pattern", metavar="REGEX", callback=_pattern, help="Only lines that match.")
@click.option(
    "--slower-than", metavar="TIME", type=Duration(), default=0.0, help="Only those that took so long in all."
)
@output_option("json")
@count_option
def tap(
    route: str,
    run_dir: str,
    types: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    slower_than: float,
    output: str | None,
    count: int | None,
) -> None:
    r"""Follow the messages that ACTOR handles, or those of one sender: FROM->TO, FROM->; of all by default.

    Actors report them only to followers.

    \b
    Example: supervisor tap 'pod_workers->status' --type SetPodStatus --slower-than 5ms
    """
    sender, receiver = route_of(route)
    wanted = Filter(sender, types, pattern, slower_than)
    with connect(run_dir) as client:
        receivers = [receiver] if receiver else [row.name for row in client.actors() if row.state == "ready"][2:]
        with contextlib.closing(client.tap(receivers, types)) as stream:
            for tapped in _first(count, filter(wanted.takes, stream)):
                record = tapped.record | {"actor": tapped.actor}
                text = "" if output == "json" else tap_text(tapped, named=not receiver)
                click.echo(f"{_clock()}  {text}" if text else render.json_line(record))


def tap_text(tapped: Tapped, *, named: bool = False) -> str:
    """One handled message as a line for people; with the receiver when `named`."""
    record = tapped.record
    sender = f"{record.get('source', '?')} #{record.get('incarnation', 0)}"
    size = f"{record['bytes']} bytes, " if "bytes" in record else ""
    to = f"to {tapped.actor:<12} " if named else ""
    waited, took = record.get("queued_ms", 0), record.get("handled_ms", 0)
    line = one_line(f"{tapped.type:<16} from {sender:<16} {to}{size}waited {waited:.2f} ms, took {took:.2f} ms")
    return line + (f" {render.styled('FAILED', 'red')}" if record.get("failed") else "")


def _clock() -> str:
    now = time.time()
    return time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"
