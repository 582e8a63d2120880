"""`supervisor logs`: print or follow the log of a container."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from actors._logs import files
from actors._logs.entries import Formatter
from actors._logs.reading import LogReader
from proto.v1 import Pod
from proto.v1.scalars.duration import DurationError, parse_seconds
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli import run_directory
from supervisor.cli.common import (
    client_of,
    complete_pod,
    connect,
    find_pod,
    list_pods,
    resolve_run_dir,
    run_dir_option,
    session_of,
)
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.cli.views.output import OutputError
from supervisor.host import settings_file
from supervisor.sockets.client import Client

POLL_S = 0.1
"""Pause between reads of a followed file that did not grow."""
STATE_POLL_S = 0.5
"""Pause between requests for the state of a followed container."""


Sleep = Callable[[float], None]


def _container_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    # While `-c` has no value, click has not parsed the arguments. Then the pod is the first unparsed word.
    name = ctx.params.get("pod") or next(iter(ctx.args), "")
    run_dir = resolve_run_dir(ctx, ctx.params.get("run_dir"))
    try:
        with client_of(session_of(ctx), run_dir) as client:
            pod = find_pod(list_pods(client), name, None, settings_file.read(run_dir).node_name)
    except (ActorError, ProtocolError, CommandError, OSError):
        return []
    return [name for name in files.container_names(pod) if name.startswith(incomplete)]


@click.command()
@click.argument("pod", shell_complete=complete_pod)
@run_dir_option
@click.option("-n", "--namespace", metavar="NS", help="The pod's namespace, if its name is in several.")
@click.option("-c", "--container", metavar="NAME", help="Which container.", shell_complete=_container_names)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the container ends.")
@click.option("-p", "--previous", is_flag=True, help="Print the log of the container's previous run.")
@click.option("--tail", type=click.IntRange(min=-1), default=-1, metavar="N", help="Print only the last N lines.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--since", metavar="DURATION", help="Print only lines newer than a duration such as 5s, 2m or 3h.")
def logs(  # noqa: PLR0913, PLR0917 - one parameter per option
    pod: str,
    run_dir: str,
    namespace: str | None,
    container: str | None,
    follow: bool,
    previous: bool,
    tail: int,
    timestamps: bool,
    since: str | None,
) -> None:
    """Print the log of a container of POD (NAME or NAMESPACE/NAME), as `kubectl logs` does."""
    formatter = Formatter(timestamps=timestamps, since=_start_of(since))
    last = None if tail < 0 else tail
    with connect(run_dir) as client:
        run_directory.check(run_dir)
        settings = settings_file.read(run_dir)
        found = find_pod(list_pods(client), pod, namespace, settings.node_name)
        name = container or _default(found)
        try:
            path = files.log_file(settings.pod_logs_dir, found, name, previous=previous)
        except files.NoSuchContainer as error:
            raise CommandError(str(error)) from error
        try:
            goes_on = follow and not previous
            _write(
                LogReader(path, last), formatter, _end_of(client, found.metadata.uid, name, path) if goes_on else _now
            )
        except (BrokenPipeError, OutputError):
            raise  # not of the log
        except OSError as error:
            raise CommandError(f"cannot read the log of container {name!r}: {path}: {error.strerror}") from error


def _start_of(since: str | None) -> float | None:
    if since is None:
        return None
    try:
        seconds = parse_seconds(since)
    except DurationError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    if seconds < 0:
        raise click.BadParameter(f"expected a duration of at least 0, not {since!r}", param_hint="--since")
    return time.time() - seconds


def _default(pod: Pod) -> str:
    name = files.default_container(pod)
    others = files.container_names(pod)
    if len(others) > 1:
        render.echo(f"Defaulted container {name!r} out of: {', '.join(others)}", err=True)
    return name


def _end_of(client: Client, uid: str, container: str, path: Path) -> Callable[[], bool]:
    """A function that is true when the run has ended. Without an answer from the agent, the run continues."""
    attempt = int(path.stem)
    asked = 0.0

    def ended() -> bool:
        nonlocal asked
        if time.monotonic() - asked < STATE_POLL_S:
            return False
        asked = time.monotonic()
        try:
            present = {pod.metadata.uid: pod for pod in list_pods(client)}
        except ActorError:
            return False
        return files.has_ended(present.get(uid), container, attempt)

    return ended


def _now() -> bool:
    return True


def _write(reader: LogReader, formatter: Formatter, ended: Callable[[], bool], sleep: Sleep = time.sleep) -> None:
    """Write the log, and new lines until `ended`, which is called while there are none."""
    out = sys.stdout.buffer
    over = False
    try:
        while True:
            reader.check_rotation()
            block = reader.read(final=over)
            if block:
                out.write(formatter.feed(block))
                continue
            out.flush()
            if over:
                break
            over = ended()  # read once more after the end, for lines that were written meanwhile
            if not over:
                sleep(POLL_S)
        out.write(formatter.finish())
        out.flush()
    finally:
        reader.close()
