"""Helpers of commands for a running agent: --run-dir, --output, completion of names, lookup of pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from proto.agent.actor import Describe
from proto.agent.remote_console import ConsoleKey
from proto.node.runtime import endpoint, socket_path
from proto.wire.errors import ActorDead, ActorError, ProtocolError
from supervisor.cli import run_directory
from supervisor.cli.errors import CommandError
from supervisor.host import settings_file
from supervisor.host.unprivileged import default_run_dir
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from proto.v1 import Pod

C = TypeVar("C", bound=Callable[..., Any])

RUN_DIR_VARIABLE = "NODEVISOR_RUN_DIR"
COMPLETION_TIMEOUT_S = 0.5


class Session(NamedTuple):
    """A console: the agent that its commands talk to, and its role."""

    place: str
    """A run directory, or `tcp://HOST:PORT` of a remote console."""
    role: str = ""
    """Empty: everything but `eval`."""
    key: ConsoleKey | None = None
    """The client's key for a remote console."""


def session_of(ctx: click.Context | None) -> Session | None:
    """The console that runs the command; None in a shell."""
    found = ctx.find_root().obj if ctx is not None else None
    return found if isinstance(found, Session) else None


def connect(run_dir: str, role: str = "") -> Client:
    """A client of the agent, with the console's role and key, or with `role` in a shell."""
    return client_of(session_of(click.get_current_context(silent=True)), run_dir, role)


def client_of(session: Session | None, run_dir: str, role: str = "") -> Client:
    """The same for a session; None: a shell."""
    role = role or (session.role if session is not None else "")
    if session is not None and session.key is not None and run_dir == session.place:
        from supervisor.sockets.remote import RemoteClient  # noqa: PLC0415 - for remote consoles only

        return RemoteClient(session.place, session.key)
    return Client(run_dir, role)


def usual_run_dir() -> str:
    """The default: /run/nodevisor for root, a directory of their own for other users."""
    return default_run_dir(os.environ, os.geteuid())


def chosen_run_dir(given: str | None) -> str:
    """`given`, else the run directory of the environment, else the default."""
    return given or os.environ.get(RUN_DIR_VARIABLE) or usual_run_dir()


def resolve_run_dir(ctx: click.Context, value: str | None) -> str:
    """The absolute path of --run-dir, else of the console, else of the environment, else of the default."""
    session = session_of(ctx)
    if session is not None and session.key is not None and value is None:
        return session.place
    return os.path.abspath(chosen_run_dir(value or (session.place if session is not None else None)))


def _run_dir_callback(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    return resolve_run_dir(ctx, value)


def run_dir_option(command: C) -> C:
    """Add the option --run-dir to a command."""
    return click.option(
        "--run-dir",
        metavar="DIR",
        callback=_run_dir_callback,
        help=f"The agent's run directory.  [default: ${RUN_DIR_VARIABLE}, else {usual_run_dir()}]",
    )(command)


def output_option(*formats: str) -> Callable[[C], C]:
    """Add the option -o with these formats to a command. Without it, the command prints a table."""
    return click.option("-o", "--output", type=click.Choice(formats), help="Format for programs; a table by default.")


def count_option(command: C) -> C:
    """Add the option --count to a command that follows a stream."""
    return click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N messages.")(command)


def runtime_endpoint(run_dir: str) -> str:
    """The CRI endpoint of the agent's configuration, else of its embedded runtime; empty when it has neither.

    Raises CommandError when this user may not read the run directory.
    """
    run_directory.check(run_dir)
    configured = settings_file.read(run_dir).container_runtime_endpoint
    if configured or not os.path.exists(socket_path(run_dir)):
        return configured
    return endpoint(run_dir)


def no_runtime(code: str, rpc: str) -> CommandError | None:
    """The error for a call that the runtime did not answer, by gRPC's code; None for the runtime's own answers.

    A pull has such codes of its registry, too.
    """
    if code not in ("Unavailable", "DeadlineExceeded") or rpc == "PullImage":
        return None
    return CommandError(f"cannot call {rpc}: the container runtime does not answer; see `supervisor why node`")


def list_pods(client: Client, timeout_s: float = 5.0) -> tuple[Pod, ...]:
    """Every pod with its status. Asks again when the status actor restarts, because the request only reads."""
    from proto.pods.status import ListPods  # noqa: PLC0415 - loads the API types, which most commands do without

    try:
        return client.ask("status", ListPods(), timeout_s).pods
    except ActorDead:
        return client.ask("status", ListPods(), timeout_s).pods


def find_pod(pods: Sequence[Pod], name: str, namespace: str | None, node_name: str) -> Pod:
    """The pod of NAME or NAMESPACE/NAME; a static pod also without `-NODENAME`. Raises CommandError."""
    space, slash, rest = name.partition("/")
    if slash:
        namespace, name = space, rest
    here = [pod for pod in pods if namespace in (None, pod.metadata.namespace)]
    found = [pod for pod in here if pod.metadata.name == name]
    found = found or [pod for pod in here if pod.metadata.name == f"{name}-{node_name}"]
    if len(found) == 1:
        return found[0]
    if found:
        spaces = ", ".join(sorted(pod.metadata.namespace for pod in found))
        raise CommandError(f"cannot choose pod {name!r}: there is one in {spaces}; write NAMESPACE/{name}")
    where = f"namespace {namespace}" if namespace is not None else "any namespace"
    raise CommandError(f"cannot find pod {name!r} in {where}; `supervisor pods` lists all pods")


def pods_not_begun(client: Client) -> list[str]:
    """A line for each pod that is not admitted yet, with the reason; none when pod_workers does not answer."""
    try:
        found = client.ask("pod_workers", Describe()).state.get("not_begun", {})
    except ActorError:
        return []
    return [f"pod {name} is not begun: {why}" for name, why in sorted(found.items())]


# Completion in a shell and in the console. It asks the agent, and offers no names when the agent does not answer.


def complete_actor(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of actors that commands accept."""
    try:
        with client_of(session_of(ctx), _run_dir_of(ctx)) as client:
            names = [row.name for row in client.actors()]
    except (ActorError, ProtocolError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete) and name not in ("supervisor", "forkserver")]


def complete_pod(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Pods as NAME, or as NAMESPACE/NAME for names in several namespaces and after a typed slash."""
    try:
        with client_of(session_of(ctx), _run_dir_of(ctx)) as client:
            pods = list_pods(client, COMPLETION_TIMEOUT_S)
    except (ActorError, ProtocolError, OSError):
        return []
    names = [pod.metadata.name for pod in pods]
    found = []
    for pod in pods:
        name, full = pod.metadata.name, f"{pod.metadata.namespace}/{pod.metadata.name}"
        if name.startswith(incomplete) or full.startswith(incomplete):
            found.append(full if "/" in incomplete or names.count(name) > 1 else name)
    return found


def complete_subject(ctx: click.Context, param: click.Parameter, incomplete: str, kinds: Sequence[str]) -> list[str]:
    """KIND/NAME of these kinds, `pod` and `actor` with their names; a kind without names ends with its slash."""
    kind, slash, name = incomplete.partition("/")
    if not slash:
        return [one for one in kinds if one.startswith(incomplete)]
    names = {"actor": complete_actor, "pod": complete_pod}.get(kind)
    return [f"{kind}/{one}" for one in names(ctx, param, name)] if names is not None else []


def _run_dir_of(ctx: click.Context) -> str:
    return resolve_run_dir(ctx, ctx.params.get("run_dir"))
