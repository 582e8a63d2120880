"""An API server with programmed faults: in front of a real server, of a function, or alone.

`on(method, path, *steps)` sets the outcome of the next calls of a kind, one step a call. Other calls are passed on to
the server behind it. Use it for faults that a real server (tests/controlplane) cannot produce at will.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from actors._kube.connection.session import Session
from actors._kube.errors import ApiError, Unreachable


@dataclass(frozen=True)
class Call:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    """Decoded JSON; None without."""
    at: float
    """Monotonic."""


@dataclass(frozen=True)
class Reply:
    """An answer: `body` is bytes, or anything JSON has."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def failure(status: int, reason: str, message: str = "", retry_after_s: int | None = None) -> Reply:
    """A metav1.Status as the API server words its refusals."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Reply(status, {**body, "message": message or f"a {status} made on purpose"}, headers)


@dataclass(frozen=True)
class Reset:
    """The connection is reset. `after`: what is behind has carried the call out first."""

    after: bool = False


@dataclass(frozen=True)
class Stall:
    """No answer until `FaultyServer.release`, or for so long; then it goes through to what is behind."""

    seconds: float | None = None


@dataclass(frozen=True)
class Half:
    """The answer's head, half its body, and the connection is closed."""

    body: bytes = b'{"kind": "PodList", "items": ['


@dataclass(frozen=True)
class Stream:
    """A chunked answer, as of a watch: these objects, one a line, then silence until `release`. With `half`, the
    connection is closed after the beginning of another object."""

    objects: tuple[Any, ...] = ()
    half: bool = False


@dataclass(frozen=True)
class Pass:
    """Pass this call on."""


Step = Reply | Reset | Stall | Half | Stream | Pass
Behind = Session | Callable[[Call], Reply]


def _nobody(call: Call) -> Reply:
    return failure(404, "NotFound", f"the server could not find the requested resource {call.path}")


class FaultyServer:
    """Serves from its making to `close`; a context manager. `url` is its address, `calls` what came in so far."""

    def __init__(self, behind: Behind = _nobody, certificate: tuple[Path, Path] | None = None) -> None:
        """`certificate`: files of the certificate and its key, for HTTPS."""
        self.behind = behind
        self.calls: list[Call] = []
        self._steps: list[tuple[str, re.Pattern[str], deque[Step]]] = []
        self._always: list[tuple[str, re.Pattern[str], Step]] = []
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Hanging calls are released."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def on(self, method: str, path: str, *steps: Step) -> None:
        """The next calls of that method (`*`: any) whose path matches the regular expression from its start."""
        with self._lock:
            self._steps.append((method, re.compile(path), deque(steps)))

    def always(self, method: str, path: str, step: Step) -> None:
        """Every call of that kind, after the steps of `on`, until `heal`."""
        with self._lock:
            self._always.append((method, re.compile(path), step))

    def heal(self) -> None:
        """Pass all calls on from now on; hanging calls continue."""
        with self._lock:
            self._steps.clear()
            self._always.clear()
        self.release()

    def release(self) -> None:
        """Release hanging calls; a later Stall hangs again."""
        self._released.set()
        self._released = threading.Event()

    def of(self, method: str, path: str = "") -> list[Call]:
        """The calls of one kind so far, oldest first."""
        return [one for one in list(self.calls) if one.method == method and re.match(path, one.path)]

    def kubeconfig(self, path: Path, authority: Path | None = None) -> Path:
        """Write a kubeconfig without credentials that leads here."""
        cluster: dict[str, Any] = {"server": self.url}
        if authority is not None:
            cluster["certificate-authority"] = str(authority)
        entry = {"cluster": "test", "user": "test"}
        content = {"apiVersion": "v1", "kind": "Config", "current-context": "test", "users": [{"name": "test"}]}
        lists = {"contexts": [{"name": "test", "context": entry}], "clusters": [{"name": "test", "cluster": cluster}]}
        path.write_text(json.dumps(content | lists))
        return path

    def take(self, call: Call) -> tuple[Step, threading.Event]:
        """Note the call; how it goes, and what lets go of it when it hangs."""
        with self._lock:
            self.calls.append(call)
            for method, path, steps in self._steps:
                if steps and method in ("*", call.method) and path.match(call.path):
                    return steps.popleft(), self._released
            for method, path, step in self._always:
                if method in ("*", call.method) and path.match(call.path):
                    return step, self._released
        return Pass(), self._released


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hung up is part of the tests."""


def _handler(server: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        faulty = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    faulty: FaultyServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        body = json.loads(content) if content else None
        call = Call(self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), body, time.monotonic())
        step, released = self.faulty.take(call)
        match step:
            case Reply():
                self._reply(step)
            case Reset(after=after):
                if after:
                    self._behind(call, content)
                self._reset()
            case Stall(seconds=seconds):
                released.wait(seconds)
                self._reply(self._behind(call, content))
            case Half(body=half):
                self._head(200, {"Content-Length": str(2 * len(half))})
                self.wfile.write(half)
                self.close_connection = True
            case Stream():
                self._stream(step, released)
            case Pass():
                self._through(call, content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names BaseHTTPRequestHandler looks for

    def log_message(self, format: str, *args: Any) -> None:
        """Nowhere."""

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _reply(self, reply: Reply) -> None:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self._head(reply.status, {"Content-Length": str(len(body)), **reply.headers})
        self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.close()

    def _stream(self, step: Stream, released: threading.Event) -> None:
        self._head(200, {"Transfer-Encoding": "chunked"})
        for one in step.objects:
            self._chunk(json.dumps(one).encode() + b"\n")
        if step.half:
            self._chunk(b'{"type": "MODIFIED", "obj')
            self.close_connection = True
            return
        released.wait()
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    # The server behind

    def _behind(self, call: Call, content: bytes) -> Reply:
        """The whole answer of the server behind."""
        behind = self.faulty.behind
        if not isinstance(behind, Session):
            return behind(call)
        with self._reset_as_behind():
            answer = behind.answer(
                call.method,
                call.path,
                query=call.query,
                body=content or None,
                content_type=call.headers.get("Content-Type") or "application/json",
                deadline=time.monotonic() + 30,
            )
        return Reply(answer.status, answer.content)

    def _through(self, call: Call, content: bytes) -> None:
        """Its answer as it comes: a watch is one, too."""
        behind = self.faulty.behind
        if not isinstance(behind, Session) or call.query.get("watch") not in ("true", "1"):
            self._reply(self._behind(call, content))
            return
        try:
            with self._reset_as_behind():
                stream = behind.stream(call.path, call.query, 30)
        except ApiError as error:
            self._reply(failure(error.status, error.reason, str(error)))
            return
        with contextlib.closing(stream):
            self._head(200, {"Transfer-Encoding": "chunked"})
            ended = False
            while not ended:
                lines, ended = stream.read()
                for line in lines:
                    self._chunk(line + b"\n")
                if not ended:
                    select.select([stream], [], [], 600)
            self._chunk(b"")

    @contextlib.contextmanager
    def _reset_as_behind(self) -> Iterator[None]:
        """Reset the client's connection when the server behind is unreachable, as it would look without us."""
        try:
            yield
        except Unreachable:
            self._reset()
            raise
