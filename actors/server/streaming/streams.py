"""Handles /exec, /attach, /portForward and /run: the runtime serves the streams, and the connection is proxied to it.

Each handler finds the pod's container or sandbox, asks the runtime for a session's URL (CRI Exec, Attach, PortForward)
and connects to it. `upgrade` then proxies the connection or translates its protocol. /run is exec without streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from actors._cri.client import MOST_SECONDS
from actors._cri.errors import CriError
from actors._logs.files import config_uid
from actors.server.base.http import JSON, Request, Response, Upgraded, text
from actors.server.context import Context
from actors.server.pods import NotRunning, find_pod, find_running
from actors.server.policy import Route
from actors.server.streaming.upgrade import (
    is_translated,
    no_upgrade,
    proxy_request,
    refusal,
    translate,
    tunnel,
    tunnelled,
)
from actors.server.streaming.upstream import Upstream, connect_upstream
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID
from proto.v1 import Pod

log = logging.getLogger(__name__)

MOST_RUNS = 16
"""Commands of /run at one time. They have no time limit, and the runtime gathers up to 16 MiB of each one's output."""
MOST_PORTS = 128
"""Ports that a WebSocket client may name. Each has two channels, and a channel's number is one byte."""


def flag(request: Request, *names: str) -> bool:
    """A stream option as the kubelet reads it: 1 or true, under any of its names."""
    return any(request.first(name) in ("1", "true") for name in names)


async def get_exec(context: Context, request: Request) -> Response | Upgraded:
    """Run the query's `command` in a container, with streams."""
    command = request.query.get("command", [])
    streams = _streams(request)
    if isinstance(streams, Response):
        return streams
    if not command:
        await find_pod(context, request)
        return text(400, "you must specify a command for the container")
    if wrong := no_upgrade(request):
        await find_running(context, request)
        return wrong
    return await _command(context, request, streams, lambda: _exec_target(context, request, command, streams))


async def _exec_target(context: Context, request: Request, command: list[str], streams: dict[str, bool]) -> Upstream:
    _, container = await find_running(context, request)
    context.moves.expect()
    return await connect_upstream(context, context.cri.exec(container, command, **streams))


async def get_attach(context: Context, request: Request) -> Response | Upgraded:
    """Attach to a container's own streams. Its spec says whether it has a terminal."""
    streams = _streams(request)
    if isinstance(streams, Response):
        return streams
    pod, container = await find_running(context, request)
    name = request.params["container"]
    spec = pod.spec
    tty = next(
        (bool(c.tty) for c in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers) if c.name == name),
        False,
    )
    streams |= {"tty": tty, "stderr": streams["stderr"] and not tty}
    return await _command(
        context, request, streams, lambda: connect_upstream(context, context.cri.attach(container, **streams))
    )


async def _command(
    context: Context,
    request: Request,
    streams: dict[str, bool],
    find_target: Callable[[], Coroutine[Any, None, Upstream]],
) -> Response | Upgraded:
    if not is_translated(context, request):
        return no_upgrade(request) or await proxy_request(context, request, await find_target())
    return refusal(request) or await translate(context, request, await find_target(), streams)


def _streams(request: Request) -> dict[str, bool] | Response:
    """The streams that the query asks for. With a terminal, stderr is in stdout."""
    tty = flag(request, "tty")
    found = {
        "stdin": flag(request, "input", "stdin"),
        "stdout": flag(request, "output", "stdout"),
        "stderr": flag(request, "error", "stderr"),
        "tty": tty,
    }
    if tty and found["stderr"]:
        found["stderr"] = False
    if not any(found[name] for name in ("stdin", "stdout", "stderr")):
        return text(400, "you must specify at least 1 of stdin, stdout, stderr")
    return found


async def get_port_forward(context: Context, request: Request) -> Response | Upgraded:
    """Forward ports of a pod. WebSocket clients of the older protocol name them in the query."""
    pod = await find_pod(context, request)
    if protocols := tunnelled(context, request):  # each SPDY stream names its port
        if wrong := refusal(request):
            return wrong
        target = await connect_upstream(context, context.cri.port_forward(await _sandbox(context, pod), []))
        return await tunnel(context, request, target, protocols)
    try:
        ports = [int(port) for values in request.query.get("port", []) for port in values.split(",")]
    except ValueError:
        ports = [0]
    if any(not 0 < port < 65536 for port in ports):
        return text(400, f"invalid port {request.first('port')!r}")
    if len(ports) > MOST_PORTS:
        return text(400, f"{len(ports)} ports are more than a session can have, which is {MOST_PORTS}")
    sandbox = await _sandbox(context, pod)
    if wrong := no_upgrade(request):
        return wrong
    return await proxy_request(
        context, request, await connect_upstream(context, context.cri.port_forward(sandbox, ports))
    )


async def _sandbox(context: Context, pod: Pod) -> str:
    wanted = pb.PodSandboxFilter(label_selector={POD_UID: config_uid(pod)})
    found = await context.cri.list_pod_sandbox(wanted)
    ready = [one for one in found if one.state == pb.SANDBOX_READY]
    if not ready:
        raise NotRunning(f'pod not found ("{pod.metadata.name}_{pod.metadata.namespace}")')
    return str(max(ready, key=lambda one: (one.metadata.attempt, one.created_at)).id)


async def run(context: Context, request: Request) -> Response:
    """Run the words of `cmd`, which spaces separate, and answer with the command's output. 429 past MOST_RUNS.

    As in the kubelet there is no time limit: the call is cancelled when the client disconnects.
    """
    _, container = await find_running(context, request)
    command = request.first("cmd").split(" ")
    if context.runs >= MOST_RUNS:
        return text(429, f"{MOST_RUNS} commands run already; try again\n", **{"Retry-After": "1"})
    context.moves.expect()
    context.runs += 1
    try:
        done = await context.cri.exec_sync(container, command, 0, timeout=MOST_SECONDS)
    except CriError as error:
        return text(500, error.grpc_text())
    finally:
        context.runs -= 1
    output = bytes(done.stdout + done.stderr)
    if done.exit_code:
        log.info("run of %s in %s exited with %d", command[0], request.params["container"], done.exit_code)
        return Response(500, b"command '%s' exited with %d: %s" % (" ".join(command).encode(), done.exit_code, output))
    return Response(200, output, JSON)  # any output, as in the kubelet


_CONTAINER = ("{namespace}/{pod}/{container}", "{namespace}/{pod}/{uid}/{container}")
_POD = ("{namespace}/{pod}", "{namespace}/{pod}/{uid}")
ROUTES = (
    *(Route("POST", f"/run/{rest}", run) for rest in _CONTAINER),
    *(Route(method, f"/exec/{rest}", get_exec) for method in ("GET", "POST") for rest in _CONTAINER),
    *(Route(method, f"/attach/{rest}", get_attach) for method in ("GET", "POST") for rest in _CONTAINER),
    *(Route(method, f"/portForward/{rest}", get_port_forward) for method in ("GET", "POST") for rest in _POD),
)
