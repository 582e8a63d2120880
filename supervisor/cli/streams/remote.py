"""`supervisor exec`, `attach` and `port-forward`: connect to a container through the runtime, without an API server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import click

from proto.cri.labels import POD_UID
from proto.v1 import Pod
from proto.wire.errors import Refused
from supervisor.cli.common import complete_pod, connect, find_pod, list_pods, no_runtime, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")
CALL_S = 15.0
PROGRAM = "nodevisor.program"
"""Key in a click context of the words after `--`."""
_WRITE_DASHES = "Write the command after two dashes: supervisor exec POD -- COMMAND [ARG]..."


def _container(pod: Pod, name: str | None) -> tuple[str, str]:
    """Name and CRI ID of the running container. Raises CommandError."""
    from actors._logs import files  # noqa: PLC0415

    chosen = name or files.default_container(pod)
    if name is None and len(files.container_names(pod)) > 1:
        render.echo(f"Defaulted container {chosen!r} out of: {', '.join(files.container_names(pod))}", err=True)
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if chosen not in files.container_names(pod):
        there = ", ".join(files.container_names(pod))
        raise CommandError(f"cannot find container {chosen!r} in pod {where}; it has {there}")
    status = files.container_status(pod, chosen)
    if status is None or status.state.running is None or not status.container_id:
        raise CommandError(f"container {chosen!r} in pod {where} does not run; `supervisor pods` shows its state")
    return chosen, status.container_id.partition("://")[2]


def call_runtime(client: Client, rpc: str, request: Message, answer: M) -> M:
    """Call the runtime through pleg, which has a channel to it."""
    from proto.pods.pleg import CallRuntime  # noqa: PLC0415

    call = CallRuntime(rpc=rpc, request=request.SerializeToString(), timeout_s=CALL_S)
    try:
        answer.ParseFromString(client.ask("pleg", call, CALL_S + 5).response)
    except Refused as error:
        raise no_runtime(error.reason, rpc) or error from error
    return answer


def _pod(client: Client, run_dir: str, name: str, namespace: str | None) -> Pod:
    client.check_role("CallRuntime")
    return find_pod(list_pods(client), name, namespace, settings_file.read(run_dir).node_name)


def _run(url: str, *, stdin: bool, stderr: bool, terminal: bool) -> int:
    from supervisor.cli.streams.transport import remote  # noqa: PLC0415
    from supervisor.cli.streams.transport.connection import Connection, StreamingError  # noqa: PLC0415

    try:
        connection = Connection(url, remote.PROTOCOL)
        try:
            with remote.raw_terminal(terminal and stdin):
                return remote.Remote(connection, stdin=stdin, stderr=stderr, terminal=terminal).run()
        finally:
            connection.close()
    except StreamingError as error:
        raise CommandError(str(error)) from error


def _terminal(wanted: bool) -> bool:
    from supervisor.cli.streams.transport.remote import is_terminal  # noqa: PLC0415

    if wanted and not is_terminal():
        render.echo("Unable to use a TTY - input is not a terminal or the right kind of file", err=True)
        return False
    return wanted


_in_namespace = click.option("-n", "--namespace", metavar="NS", help="The pod's namespace, if its name is in several.")
_of_container = click.option("-c", "--container", metavar="NAME", help="The container; by default the first.")
_with_stdin = click.option("-i", "--stdin", is_flag=True, help="Send standard input to the container.")
_with_tty = click.option("-t", "--tty", is_flag=True, help="Use a terminal.")


class _AfterDashes(click.Command):
    """A command that stores the arguments after `--`, a program for the container, in `ctx.meta[PROGRAM]`.

    A program without `--` is refused, as by kubectl since 1.31, because its flags would be ambiguous.
    """

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage, with the program after the dashes."""
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND", "[ARG]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before `--`. Raises click.UsageError."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[PROGRAM] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.UsageError as error:
            raise click.UsageError(f"{error.format_message()}\n{_WRITE_DASHES}", ctx) from error


@click.command(cls=_AfterDashes)
@run_dir_option
@_in_namespace
@_of_container
@_with_stdin
@_with_tty
@click.argument("pod", shell_complete=complete_pod)
@click.pass_context
def exec(
    ctx: click.Context,
    run_dir: str,
    namespace: str | None,
    container: str | None,
    stdin: bool,
    tty: bool,
    pod: str,
) -> None:
    """Run COMMAND in a container of POD (NAME or NAMESPACE/NAME), and exit with its exit code."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    words = ctx.meta[PROGRAM]
    if not words:
        raise click.UsageError(f"you must specify a command for the container. {_WRITE_DASHES}")
    terminal = _terminal(tty)
    with connect(run_dir) as client:
        _, identity = _container(_pod(client, run_dir, pod, namespace), container)
        request = pb.ExecRequest(
            container_id=identity, cmd=words, stdin=stdin, stdout=True, stderr=not terminal, tty=terminal
        )
        url = call_runtime(client, "Exec", request, pb.ExecResponse()).url
    ctx.exit(_run(url, stdin=stdin, stderr=not terminal, terminal=terminal))


@click.command()
@run_dir_option
@_in_namespace
@_of_container
@_with_stdin
@_with_tty
@click.argument("pod", shell_complete=complete_pod)
@click.pass_context
def attach(
    ctx: click.Context, run_dir: str, namespace: str | None, container: str | None, stdin: bool, tty: bool, pod: str
) -> None:
    """Follow the output of a container of POD, and with -i write to its input."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    with connect(run_dir) as client:
        found = _pod(client, run_dir, pod, namespace)
        name, identity = _container(found, container)
        groups = (found.spec.containers, found.spec.init_containers, found.spec.ephemeral_containers)
        has_tty = any(one.tty for group in groups for one in group if one.name == name)
        terminal = _terminal(tty) and has_tty
        request = pb.AttachRequest(container_id=identity, stdin=stdin, stdout=True, stderr=not has_tty, tty=has_tty)
        url = call_runtime(client, "Attach", request, pb.AttachResponse()).url
    ctx.exit(_run(url, stdin=stdin, stderr=not has_tty, terminal=terminal))


def _ports(given: tuple[str, ...]) -> list[tuple[int, int]]:
    """Local and remote ports of `LOCAL:REMOTE`, `PORT`, or `:REMOTE` for any free local port."""
    found = []
    for words in given:
        local, colon, remote = words.partition(":")
        try:
            ports = (int(local or 0), int(remote)) if colon else (int(local), int(local))
        except ValueError:
            ports = (-1, -1)
        if not (0 <= ports[0] < 65536 and 0 < ports[1] < 65536):
            raise click.BadParameter(f"{words!r} is neither PORT, LOCAL:REMOTE nor :REMOTE")
        found.append(ports)
    return found


@click.command()
@run_dir_option
@_in_namespace
@click.option(
    "--address", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on; by default 127.0.0.1."
)
@click.argument("pod", shell_complete=complete_pod)
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]PORT...")
def port_forward(run_dir: str, namespace: str | None, address: str, pod: str, ports: tuple[str, ...]) -> None:
    """Forward connections from local ports to ports of POD until interrupted."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415
    from supervisor.cli.streams.transport.connection import Connection, StreamingError  # noqa: PLC0415
    from supervisor.cli.streams.transport.forward import PROTOCOL, Forwarder  # noqa: PLC0415

    pairs = _ports(ports)
    with connect(run_dir) as client:
        found = _pod(client, run_dir, pod, namespace)
        request = pb.PortForwardRequest(pod_sandbox_id=_sandbox(client, found))
        url = call_runtime(client, "PortForward", request, pb.PortForwardResponse()).url
    try:
        connection = Connection(url, PROTOCOL)
        forwarder = Forwarder(connection, lambda text: render.echo(text, err=True))
        for local, remote in pairs:
            taken = forwarder.listen(address, local, remote)
            render.echo(f"Forwarding from {address}:{taken} -> {remote}")
        forwarder.run()
    except StreamingError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot forward ports: {error.strerror}") from error
    raise CommandError(f"lost connection to pod at {time.strftime('%H:%M:%S')}")


def _sandbox(client: Client, pod: Pod) -> str:
    from actors._logs.files import config_uid  # noqa: PLC0415
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    chosen = pb.PodSandboxFilter(label_selector={POD_UID: config_uid(pod)})
    wanted = pb.ListPodSandboxRequest(filter=chosen)
    found = call_runtime(client, "ListPodSandbox", wanted, pb.ListPodSandboxResponse()).items
    ready = [one for one in found if one.state == pb.SANDBOX_READY]
    if not ready:
        raise CommandError(
            f"pod {pod.metadata.namespace}/{pod.metadata.name} has no running sandbox; see `supervisor pods`"
        )
    return str(max(ready, key=lambda one: (one.metadata.attempt, one.created_at)).id)
