"""Exec, Attach and PortForward rpcs: check the request and answer with the URL of a session.

The server behind the URLs is imported with the first session: most nodes see none for days.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from actors.runtime.engine.engine import Engine
from actors.runtime.model.errors import RpcError, invalid, unmet
from actors.runtime.streaming.limits import MOST_PORTS
from actors.runtime.streaming.policy import ATTACH, EXEC, PORT_FORWARD, SessionRequest
from proto.cri import api_pb2 as pb

if TYPE_CHECKING:
    from actors.runtime.streaming.server import StreamingServer


class Sessions:
    """Prepares sessions. Safe from any thread; every method raises RpcError."""

    def __init__(self, engine: Engine, idle_s: float) -> None:
        self._engine, self._idle_s = engine, idle_s
        self._lock = threading.Lock()
        self._server: StreamingServer | None = None

    def exec(self, request: pb.ExecRequest) -> str:
        """The URL of an exec session."""
        if not request.cmd:
            raise invalid("no command to run")
        return self._command_url(EXEC, request, tuple(request.cmd))

    def attach(self, request: pb.AttachRequest) -> str:
        """The URL of an attach session. The container's configuration decides whether it has a terminal."""
        return self._command_url(ATTACH, request)

    def port_forward(self, request: pb.PortForwardRequest) -> str:
        """The URL of a port-forward session."""
        if len(request.port) > MOST_PORTS:
            raise invalid(f"{len(request.port)} ports are more than a session can have, which is {MOST_PORTS}")
        sandbox = self._engine.state.sandboxes.get(request.pod_sandbox_id)
        if sandbox.record.stopped:
            raise unmet(f"pod sandbox {sandbox.record.id} is not ready")
        return self._url(SessionRequest(PORT_FORWARD, sandbox.record.id, ports=tuple(request.port)))

    def _command_url(self, kind: str, request: pb.ExecRequest | pb.AttachRequest, command: tuple[str, ...] = ()) -> str:
        container = self._engine.state.containers.get(request.container_id)
        container.require_running()
        wanted = SessionRequest(
            kind,
            container.record.id,
            command,
            stdin=request.stdin,
            stdout=request.stdout,
            stderr=request.stderr,
            tty=request.tty,
        )
        return self._url(wanted.require_streams())

    def _url(self, wanted: SessionRequest) -> str:
        with self._lock:
            if self._server is None:
                from actors.runtime.streaming.server import StreamingServer  # noqa: PLC0415 - see above

                try:
                    self._server = StreamingServer(self._engine, self._idle_s)
                except OSError as error:
                    raise RpcError("UNAVAILABLE", f"cannot listen for streaming sessions: {error}") from error
            server = self._server
        return server.url(wanted)

    def stop(self) -> None:
        """End all sessions."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
