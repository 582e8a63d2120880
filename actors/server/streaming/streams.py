"""/exec, /attach and /portForward: the runtime serves the streams; the connection goes on to it.

Most are handed through: the request's head with another target and host, and then every byte of either side as it
comes. What runtimes need not know, version 5 of the remote command protocol and SPDY within WebSocket, is spoken here,
and SPDY with the runtime (upgrading.py). /run is exec without streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from actors._cri.errors import CriError
from actors._logs.files import config_uid
from actors.server.base.http import Request, Response, Upgraded, text
from actors.server.context import Context
from actors.server.pods import NotThere, find_pod, running_container
from actors.server.policy import Route
from actors.server.streaming.upgrade import (
    Way,
    hand_through,
    is_translated,
    no_upgrade,
    refusal,
    translate,
    tunnel,
    tunnelled,
    way_to,
)
from proto.cri import api_pb2 as pb
from proto.v1 import Pod

log = logging.getLogger(__name__)

RUN_S = 300.0
_POD_UID = "io.kubernetes.pod.uid"


def flag(request: Request, *names: str) -> bool:
    """As the kubelet reads stream options: 1 or true, by either of their names."""
    return any(request.first(name) in ("1", "true") for name in names)


async def get_exec(context: Context, request: Request) -> Response | Upgraded:
    """Run `command` in a container."""
    command = request.query.get("command", [])
    streams = _streams(request)
    if isinstance(streams, Response):
        return streams
    if not command:
        await find_pod(context, request)
        return text(400, "you must specify a command for the container")
    if wrong := no_upgrade(request):
        running_container(await find_pod(context, request), request.params["container"])
        return wrong
    return await _command(context, request, streams, lambda: _exec_way(context, request, command, streams))


async def _exec_way(context: Context, request: Request, command: list[str], streams: dict[str, bool]) -> Way:
    container = running_container(await find_pod(context, request), request.params["container"])
    context.moves.expect()
    return await way_to(context, context.cri.exec(container, command, **streams))


async def get_attach(context: Context, request: Request) -> Response | Upgraded:
    """A container's own streams. Whether it has a terminal is in its spec."""
    streams = _streams(request)
    if isinstance(streams, Response):
        return streams
    pod = await find_pod(context, request)
    name = request.params["container"]
    container = running_container(pod, name)
    spec = pod.spec
    tty = next(
        (bool(c.tty) for c in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers) if c.name == name),
        False,
    )
    streams |= {"tty": tty, "stderr": streams["stderr"] and not tty}
    return await _command(context, request, streams, lambda: way_to(context, context.cri.attach(container, **streams)))


async def _command(
    context: Context, request: Request, streams: dict[str, bool], find_way: Callable[[], Coroutine[Any, None, Way]]
) -> Response | Upgraded:
    if not is_translated(context, request):
        return no_upgrade(request) or await hand_through(context, request, await find_way())
    return refusal(request) or await translate(context, request, await find_way(), streams)


def _streams(request: Request) -> dict[str, bool] | Response:
    """Which streams are wanted. With a terminal, stderr is in stdout."""
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
    """Reach ports of a pod. WebSocket clients of the older protocol name them in the query."""
    pod = await find_pod(context, request)
    if protocols := tunnelled(context, request):  # which ports: each of its streams says that
        if wrong := refusal(request):
            return wrong
        way = await way_to(context, context.cri.port_forward(await _sandbox(context, pod), []))
        return await tunnel(context, request, way, protocols)
    try:
        ports = [int(port) for values in request.query.get("port", []) for port in values.split(",")]
    except ValueError:
        ports = [0]
    if any(not 0 < port < 65536 for port in ports):
        return text(400, f"invalid port {request.first('port')!r}")
    sandbox = await _sandbox(context, pod)
    if wrong := no_upgrade(request):
        return wrong
    return await hand_through(context, request, await way_to(context, context.cri.port_forward(sandbox, ports)))


async def _sandbox(context: Context, pod: Pod) -> str:
    wanted = pb.PodSandboxFilter(label_selector={_POD_UID: config_uid(pod)})
    found = await context.cri.list_pod_sandbox(wanted)
    ready = sorted((one for one in found if one.state == pb.SANDBOX_READY), key=lambda one: one.created_at)
    if not ready:
        raise NotThere(f'sandbox for pod "{pod.metadata.name}" not found')
    return str(ready[-1].id)


async def run(context: Context, request: Request) -> Response:
    """Run `cmd`, words apart by spaces, and answer with what it says."""
    pod = await find_pod(context, request)
    container = running_container(pod, request.params["container"])
    command = request.first("cmd").split(" ")
    context.moves.expect()
    try:
        done = await context.cri.exec_sync(container, command, 0, timeout=RUN_S)
    except CriError as error:
        return text(500, error.grpc_text())
    output = bytes(done.stdout + done.stderr)
    if done.exit_code:
        log.info("run of %s in %s exited with %d", command[0], request.params["container"], done.exit_code)
        return Response(500, b"command '%s' exited with %d: %s" % (" ".join(command).encode(), done.exit_code, output))
    return Response(200, output)


_CONTAINER = ("{namespace}/{pod}/{container}", "{namespace}/{pod}/{uid}/{container}")
_POD = ("{namespace}/{pod}", "{namespace}/{pod}/{uid}")
ROUTES = (
    *(Route("POST", f"/run/{rest}", run) for rest in _CONTAINER),
    *(Route(method, f"/exec/{rest}", get_exec) for method in ("GET", "POST") for rest in _CONTAINER),
    *(Route(method, f"/attach/{rest}", get_attach) for method in ("GET", "POST") for rest in _CONTAINER),
    *(Route(method, f"/portForward/{rest}", get_port_forward) for method in ("GET", "POST") for rest in _POD),
)
