"""The command why: for what a pod, the node, an actor, an image or a volume waits, down to the root cause.

It reads the wait records of the run directory, so it answers also while actors or the supervisor are stopped.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from proto.agent.supervisor import ListActors
from proto.common.safe_text import one_line
from proto.node.runtime import EMBEDDED
from proto.node.runtime import endpoint as embedded_endpoint
from proto.waits.chain import Answer, shown
from proto.waits.facts import ActorState, Facts, collect, states
from proto.waits.resolve import UnknownSubjectError, subject_of
from proto.waits.text import lines, unmet
from proto.waits.walk import why as walk
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.common import complete_actor, list_pods, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file
from supervisor.sockets.client import Client

PEERS_S = 0.05
"""The answers of supervisor and status add to the records. They are not waited for any longer."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    if incomplete.startswith("actor/"):
        return [f"actor/{name}" for name in complete_actor(ctx, param, incomplete.removeprefix("actor/"))]
    return [kind for kind in ("pod/", "node", "actor/", "image/", "volume/") if kind.startswith(incomplete)]


@click.command()
@click.argument("subject", shell_complete=_complete)
@run_dir_option
@output_option("json")
def why(subject: str, run_dir: str, output: str | None) -> None:
    """Tell why SUBJECT waits: pod/NAME, node, actor/NAME, image/NAME or volume/NAME.

    Example: supervisor why pod/web
    """
    began = time.monotonic()
    try:
        answer, known = explain(Path(run_dir), subject)
    except UnknownSubjectError as error:
        raise CommandError(str(error)) from error
    answer = msgspec.structs.replace(answer, took_ms=round((time.monotonic() - began) * 1000, 1))
    if output == "json":
        found = {**msgspec.to_builtins(answer), "sentence": answer.sentence}
        render.echo(render.json_text(found))
        return
    render.echo(one_line(known or answer.sentence))
    for line in lines(answer):
        render.echo(line)


def explain(run_dir: Path, text: str) -> tuple[Answer, str]:
    """The answer for a subject as people write it, and a sentence of its pod's status where nothing is recorded."""
    facts = gather(run_dir)
    name = text.removeprefix("pod/") if text.startswith("pod/") else ""
    try:
        subject = subject_of(text, facts)
    except UnknownSubjectError:
        if not name:
            raise
        subject = subject_of(text, facts, _known_pods(run_dir))
    answer = walk(facts, subject)
    if answer.causes or not name:
        return answer, ""
    return answer, _status(run_dir, subject)


def gather(run_dir: Path) -> Facts:
    """The facts of this moment. The supervisor has `PEERS_S` to add its view of the actors."""
    try:
        endpoint = settings_file.read(run_dir).container_runtime_endpoint
    except OSError:
        endpoint = ""
    endpoint = embedded_endpoint(str(run_dir)) if endpoint == EMBEDDED else endpoint
    rows: dict[str, ActorState] = {}
    try:
        with Client(str(run_dir)) as client:
            answer = client.ask("supervisor", ListActors(with_memory=False), PEERS_S)
            rows = states(answer.rows)
    except (ActorError, ProtocolError, OSError):
        rows = {}
    facts = collect(run_dir, rows, endpoint)
    if not facts.tables and not rows:
        raise CommandError(f"cannot find an agent in {run_dir}: start one, or name its run directory with --run-dir")
    return facts


def _known_pods(run_dir: Path) -> list[str]:
    try:
        with Client(str(run_dir)) as client:
            return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in list_pods(client, PEERS_S)]
    except (ActorError, ProtocolError, OSError):
        return []


def _status(run_dir: Path, subject: str) -> str:
    """The pod's own conditions: what it waits for inside itself, such as a probe."""
    try:
        with Client(str(run_dir)) as client:
            pods = list_pods(client, PEERS_S)
    except (ActorError, ProtocolError, OSError):
        return ""
    for pod in pods:
        if f"pod/{pod.metadata.namespace}/{pod.metadata.name}" == subject and pod.status is not None:
            return unmet(subject, pod)
    raise CommandError(f"cannot find {shown(subject)}; `supervisor pods` lists all pods")
