"""/exec, /attach and /portForward: the runtime serves the streams; the connection is handed through to it.

The request's head goes on with another target and host, and then every byte of either side as it comes: what the client
speaks, SPDY or WebSocket, is between it and the runtime. /run is exec without streams.
"""

from __future__ import annotations

import logging
import re
from urllib.parse import urlsplit

import h11

from actors._cri.errors import CriError
from actors._logs.files import config_uid
from actors._net.stream import HEAD_BLOCK, Stream, connect
from actors.server.http import Context, Request, Response, Upgraded, text
from actors.server.pods import NotThere, cri, find_pod, running_container
from actors.server.policy import Route
from proto.cri import api_pb2 as pb
from proto.v1 import Pod

log = logging.getLogger(__name__)

CONNECT_S = 10.0
ANSWER_S = 30.0
"""For the head of the runtime's answer: an exec has been set up before that."""
REFUSAL_BYTES = 64 * 1024
RUN_S = 300.0
MOST_KNOWN = 256
"""Containers in which something was run lately."""
_AGREED = re.compile(rb"HTTP/1\.1 101 [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n")
"""Nearly every answer, and in one piece; the parser takes half a millisecond."""
_TARGET = re.compile(rb"\A([A-Z]+) [^ ]+ ")
_HOST = re.compile(rb"(?im)^host:[^\r\n]*\r\n")
_AUTHORIZATION = re.compile(rb"(?im)^authorization:[^\r\n]*\r\n")
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
    return await _hand_through(context, request, await _exec_url(context, request, command, streams))


async def _exec_url(context: Context, request: Request, command: list[str], streams: dict[str, bool]) -> str:
    """Where the runtime serves it. Most execs follow others in the same container, by the same path: the runtime is
    asked to prepare this one at the same time as the status actor whether that is still the container."""
    known: dict[str, str] = context.services.setdefault("execs", {})
    guess = known.pop(request.path, "")
    guessed = cri(context).exec(guess, command, **streams) if guess else None
    try:
        container = running_container(await find_pod(context, request), request.params["container"])
        known[request.path] = container
        if len(known) > MOST_KNOWN:
            del known[next(iter(known))]
        if guessed is not None and container == guess:
            return await guessed
    finally:
        if guessed is not None:
            guessed.cancel()
    return await cri(context).exec(container, command, **streams)


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
    return await _hand_through(context, request, await cri(context).attach(container, **streams))


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
    try:
        ports = [int(port) for values in request.query.get("port", []) for port in values.split(",")]
    except ValueError:
        ports = [0]
    if any(not 0 < port < 65536 for port in ports):
        return text(400, f"invalid port {request.first('port')!r}")
    sandbox = await _sandbox(context, pod)
    return await _hand_through(context, request, await cri(context).port_forward(sandbox, ports))


async def _sandbox(context: Context, pod: Pod) -> str:
    wanted = pb.PodSandboxFilter(label_selector={_POD_UID: config_uid(pod)})
    found = await cri(context).list_pod_sandbox(wanted)
    ready = sorted((one for one in found if one.state == pb.SANDBOX_READY), key=lambda one: one.created_at)
    if not ready:
        raise NotThere(f'sandbox for pod "{pod.metadata.name}" not found')
    return str(ready[-1].id)


async def _hand_through(context: Context, request: Request, url: str) -> Response | Upgraded:
    if not request.is_upgrade or not request.head:
        return text(400, "Upgrade request required")
    target = urlsplit(url)
    host, port = target.hostname or "127.0.0.1", target.port or 80
    if target.scheme != "http":
        return text(500, f"the runtime serves its streams on {target.scheme}, which is not supported: set it to http")
    try:
        other = await connect(context.loop, host, port, CONNECT_S)
    except OSError as error:
        return text(500, f"cannot reach the runtime's streaming server at {host} port {port}: {error.strerror}")
    timer = context.loop.call_later(ANSWER_S, other.abort)
    answer: Response | Upgraded | None = None
    try:
        path = target.path + (f"?{target.query}" if target.query else "")
        await other.write(head_for(request.head, path, f"{host}:{port}"))
        answer = await _answer_of(other, context.settings.streaming_idle_timeout_s)
    except (OSError, h11.RemoteProtocolError) as error:
        return text(500, f"the runtime's streaming server gave no answer: {error}")
    finally:
        timer.cancel()
        if not isinstance(answer, Upgraded):
            other.close()
    return answer


def head_for(head: bytes, path: str, host: str) -> bytes:
    """The client's own request head for the runtime: with its target, and without the client's credentials."""
    head = _TARGET.sub(lambda found: found[1] + b" " + path.encode() + b" ", head, count=1)
    head = _AUTHORIZATION.sub(b"", head)
    return _HOST.sub(b"Host: " + host.encode() + b"\r\n", head, count=1)


async def _answer_of(other: Stream, idle_s: float) -> Response | Upgraded:
    """What the runtime says: all bytes so far when it agrees, else its refusal as an answer of ours."""
    head = await other.read(HEAD_BLOCK)
    if _AGREED.match(head):
        return Upgraded(head, other, idle_s)
    http = h11.Connection(h11.CLIENT)
    asked = [("Host", "runtime"), ("Connection", "Upgrade"), ("Upgrade", "any")]
    http.send(h11.Request(method="GET", target="/", headers=asked))  # what it has to know to understand the answer
    http.send(h11.EndOfMessage())
    http.receive_data(head)
    status, body = 0, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            data = await other.read(HEAD_BLOCK)
            head += data
            http.receive_data(data)
        elif isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            return Upgraded(head, other, idle_s)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body = (body + event.data)[:REFUSAL_BYTES]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return Response(status or 502, body)


async def run(context: Context, request: Request) -> Response:
    """Run `cmd`, words apart by spaces, and answer with what it says."""
    pod = await find_pod(context, request)
    container = running_container(pod, request.params["container"])
    command = request.first("cmd").split(" ")
    try:
        done = await cri(context).exec_sync(container, command, 0, timeout=RUN_S)
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
