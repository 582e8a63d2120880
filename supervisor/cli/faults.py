"""`supervisor fault`: inject a fault into the running agent, list the active ones, end them early."""

from __future__ import annotations

from typing import Any

import click

from proto.agent.faults import KINDS, Fault
from proto.agent.supervisor import EndFaults, Faults, InjectFault, ListFaults
from proto.v1.scalars.duration import DurationError, parse_seconds
from supervisor.cli.common import (
    complete_actor,
    complete_pod,
    connect,
    find_pod,
    list_pods,
    output_option,
    run_dir_option,
)
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file
from supervisor.sockets.client import Client

HEADERS = ("ID", "KIND", "ACTOR", "TO", "VALUE", "ENDS IN", "OF")
CALL_S = 10.0


class Kinds(click.Group):
    """A subcommand for each kind of fault, beside `list` and `end`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every kind, then list and end."""
        return [*KINDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a kind."""
        return _command(cmd_name) if cmd_name in KINDS else super().get_command(ctx, cmd_name)


@click.group(cls=Kinds)
def fault() -> None:
    """Inject a fault into the running agent. Needs `supervisor start --fault-injection`.

    Each fault ends by itself, and when the agent ends. Example: supervisor fault slow probe --to pod_workers --for 30s
    """


def _command(kind: str) -> click.Command:
    about = KINDS[kind]
    parameters: list[click.Parameter] = []
    if about.scope in ("actor", "peer", "agent"):
        parameters.append(click.Argument(["actor"], required=about.scope != "agent", shell_complete=complete_actor))
    if about.scope == "peer":
        help_ = "The receiver of the messages."
        parameters.append(click.Option(["--to", "peer"], required=True, metavar="ACTOR", help=help_))
    if about.scope == "pod":
        parameters.append(click.Argument(["pod"], shell_complete=complete_pod))
    if kind == "exception":
        help_ = "Before the next message of this type; else now."
        parameters.append(click.Option(["--type", "words"], multiple=True, metavar="MESSAGE", help=help_))
    if about.lasts:
        parameters.append(click.Option(["--for", "lasts"], default="10s", show_default=True, metavar="DURATION"))
    if about.value:
        help_ = f"{about.value[0].upper()}{about.value[1:]}."
        parameters.append(click.Option(["--value"], type=float, default=about.default, show_default=True, help=help_))
    about_it = f"{about.help[0].upper()}{about.help[1:]}."
    command = click.Command(kind, callback=lambda **given: _inject(kind, **given), params=parameters, help=about_it)
    return run_dir_option(command)


def _inject(kind: str, run_dir: str, **given: Any) -> None:
    lasts = given.get("lasts", "10s")
    try:
        duration_s = parse_seconds(lasts)
    except DurationError as error:
        raise CommandError(f"cannot read --for {lasts!r}: {error}; write 30s or 2m") from error
    with connect(run_dir) as client:
        words = tuple(given.get("words", ()))
        if "pod" in given:
            words = _ids(client, run_dir, given["pod"])
        one = Fault(
            kind=kind,
            actor="volume" if kind == "mount" else given.get("actor") or "",
            peer=given.get("peer", ""),
            words=words,
            value=given.get("value", 0.0),
        )
        answer = client.ask("supervisor", InjectFault(fault=one, duration_s=duration_s), CALL_S)
    latest = max((found.id for found in answer.faults), default=0)
    if KINDS[kind].lasts:
        render.echo(f"fault {latest} is active; `supervisor fault end {latest}` ends it early")


def _ids(client: Client, run_dir: str, name: str) -> tuple[str, ...]:
    """The pod's UID, and the IDs of its containers and sandboxes: the runtime's calls name one of them."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415 - loads protobuf
    from proto.cri.labels import POD_UID  # noqa: PLC0415
    from supervisor.cli.streams.remote import call_runtime  # noqa: PLC0415

    pod = find_pod(list_pods(client), name, None, settings_file.read(run_dir).node_name)
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    uid = pod.metadata.uid
    wanted = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector={POD_UID: uid}))
    found = call_runtime(client, "ListPodSandbox", wanted, pb.ListPodSandboxResponse())
    containers = [one.container_id.partition("://")[2] for one in statuses if one.container_id]
    return (uid, *containers, *(str(sandbox.id) for sandbox in found.items))


@fault.command("list")
@run_dir_option
@output_option("json", "plain")
def list_(run_dir: str, output: str | None) -> None:
    """List the active faults."""
    with connect(run_dir) as client:
        _show(client.ask("supervisor", ListFaults(), CALL_S), output)


@fault.command()
@click.argument("ids", nargs=-1, type=int)
@click.option("--all", "every", is_flag=True, help="End every active fault.")
@run_dir_option
def end(ids: tuple[int, ...], every: bool, run_dir: str) -> None:
    """End faults before their time."""
    if every == bool(ids):
        raise CommandError("cannot tell which faults to end: name their IDs, or write --all")
    with connect(run_dir) as client:
        client.ask("supervisor", EndFaults(ids=ids), CALL_S)


def _show(found: Faults, output: str | None) -> None:
    if output == "json":
        render.echo(render.json_text([as_json(one, found.now) for one in found.faults]))
        return
    rows = [
        (
            str(one.id),
            one.kind,
            one.actor or "all",
            one.peer or "-",
            f"{one.value:g}" if KINDS[one.kind].value else "-",
            f"{max(0.0, one.until - found.now):.0f}s",
            ",".join(one.words)[:40] or "-",
        )
        for one in found.faults
    ]
    if output == "plain":
        render.plain_lines(HEADERS, rows, frozenset())
    else:
        render.table(HEADERS, rows)


def as_json(one: Fault, now: float) -> dict[str, Any]:
    """A fault for -o json."""
    return {
        "id": one.id,
        "kind": one.kind,
        "actor": one.actor,
        "to": one.peer,
        "value": one.value,
        "endsInSeconds": round(max(0.0, one.until - now), 3),
        "of": list(one.words),
    }
