"""The streaming server: accepts clients of prepared sessions on the loopback, and serves each session.

Its thread and port exist from the first session on. A token admits one client, once. It is only in the answer to an
rpc, on a socket that only root and the agent's programs can reach.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import h11

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import first_of
from actors._net.client_watchdog import ClientWatchdog
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors._net.streaming.remotecommand import (
    SPDY_COMMAND,
    SPDY_FORWARD,
    TUNNEL,
    VERSION,
    WEBSOCKET_COMMAND,
    WEBSOCKET_FORWARD,
    WITH_RESIZE,
    choose,
    ended,
    failed,
    listed,
    outcome,
)
from actors._net.streaming.spdy import ProtocolError
from actors._net.streaming.spdylink import Link
from actors._net.streaming.websocket import Numbered, WebSocket, WebSocketBytes, proof
from actors.runtime.engine.engine import Engine
from actors.runtime.engine.monitor_client import MonitorError
from actors.runtime.model.errors import RpcError
from actors.runtime.model.state import Container
from actors.runtime.streaming.attachment import Attachment
from actors.runtime.streaming.execution import ExecFailed, Execution
from actors.runtime.streaming.limits import PER_SESSION, Limits
from actors.runtime.streaming.policy import EXEC, PORT_FORWARD, SessionRequest, Tokens
from actors.runtime.streaming.portforward import Ports, SpdyForward, forward_by_websocket
from actors.runtime.streaming.remotecommand import Channels, RemoteCommand
from actors.runtime.streaming.spdy import SpdyChannels
from actors.runtime.streaming.upgrade import Upgrade, read_request, refuse, switch
from actors.runtime.streaming.websocket import WebSocketChannels

T = TypeVar("T")
HEAD_S = 10.0
STREAMS_S = 30.0
"""Time for a client to open its streams, as in the kubelet."""
LEAVE_S = 5.0
"""Time for a client to hang up once it has received the end of a session."""
STALLED_S = 30.0
"""Time in which such a client has to take some of the bytes that it lacks."""
BUSY_S = 0.1
THREADS = 16
BACKLOG = 512
log = logging.getLogger(__name__)


class StreamingServer:
    """All sessions."""

    def __init__(self, engine: Engine, idle_s: float) -> None:
        """`idle_s`: ends a session after this time without traffic; 0 for never. Raises OSError."""
        self._engine, self._idle_s = engine, idle_s
        self._tokens = Tokens()
        self._limits = Limits()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="stream")
        # An end takes seconds when the command ignores SIGHUP. Ends of their own pool hold up no start.
        self._ends = ThreadPoolExecutor(THREADS, thread_name_prefix="end")
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.loop = Loop()
        self.loop.start(self._crashed)
        self.loop.call(lambda: self.loop.spawn(self._accept(), "accept"))

    def url(self, wanted: SessionRequest) -> str:
        """A URL for the session, valid once and for a minute. Safe from any thread. Raises RpcError."""
        with self._lock:
            return f"{self._base}/{wanted.kind}/{self._tokens.issue(wanted, time.monotonic())}"

    def stop(self) -> None:
        """End all sessions; the next start ends the commands that they ran."""
        self.loop.stop()

    @staticmethod
    def _crashed(error: BaseException) -> None:
        log.critical("a streaming session failed unexpectedly", exc_info=error)

    @staticmethod
    def _blocking(pool: ThreadPoolExecutor, function: Callable[[], T]) -> Future[T]:
        """Run the function in a thread of the pool."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set(function())
            except BaseException as error:
                future.set_error(error)

        pool.submit(work)
        return future

    # Clients

    async def _accept(self) -> None:
        while True:
            await self.loop.readable(self._listener.fileno())
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    await self.loop.sleep(BUSY_S)
                continue
            if not self._limits.descriptors.take(1):
                connected.close()
                continue
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.loop.spawn(self._client(Stream(self.loop, connected)), "session")

    async def _client(self, stream: Stream) -> None:
        try:
            await self._session(stream)
        except (OSError, ProtocolError, h11.ProtocolError, RpcError) as error:
            log.debug("a streaming session ended: %s", error)
        except Exception:  # other sessions continue
            log.exception("a streaming session was cut off")
        finally:
            stream.close()
            self._limits.descriptors.give(1)

    async def _session(self, stream: Stream) -> None:
        timer = self.loop.call_later(HEAD_S, stream.abort)
        try:
            asked = await read_request(stream)
        finally:
            timer.cancel()
        if asked is None:
            return
        if asked.method not in ("GET", "POST"):
            await refuse(stream, asked.http, 405, "Method Not Allowed", {})
            return
        if asked.to not in ("spdy/3.1", "websocket"):
            await refuse(stream, asked.http, 400, "unable to upgrade: SPDY/3.1 or websocket is wanted", {})
            return
        with self._lock:
            wanted = self._tokens.redeem(asked.path, time.monotonic())
        if wanted is None:
            await refuse(
                stream, asked.http, 404, "404 page not found: no such session, or its URL was used or has expired", {}
            )
            return
        count = PER_SESSION - 1 + len(wanted.ports)
        if not self._limits.descriptors.take(count):
            await refuse(stream, asked.http, 503, "too many exec, attach and port-forward sessions: end some", {})
            return
        try:
            await (self._by_websocket if asked.to == "websocket" else self._by_spdy)(stream, asked, wanted)
        finally:
            self._limits.descriptors.give(count)

    async def _by_spdy(self, stream: Stream, asked: Upgrade, wanted: SessionRequest) -> None:
        served = SPDY_FORWARD if wanted.kind == PORT_FORWARD else SPDY_COMMAND
        protocol = choose(listed(asked.values(VERSION.lower())), served, served[-1])
        if protocol is None:
            why = f"unable to upgrade: unable to negotiate protocol: server accepts {', '.join(served)}"
            await refuse(stream, asked.http, 403, why, {"X-Accepted-Stream-Protocol-Versions": ", ".join(served)})
            return
        await switch(stream, asked, {"Upgrade": "SPDY/3.1", VERSION: protocol})
        link = Link(stream, asked.early)
        if wanted.kind == PORT_FORWARD:
            await self._forward(stream, link, wanted)
        else:
            resize = {"resize"} if wanted.tty and protocol in WITH_RESIZE else set()
            channels = SpdyChannels(link, _expected(wanted) | resize)
            await self._command(stream, channels, protocol, wanted)

    async def _by_websocket(self, stream: Stream, asked: Upgrade, wanted: SessionRequest) -> None:
        served = WEBSOCKET_FORWARD if wanted.kind == PORT_FORWARD else WEBSOCKET_COMMAND
        offered = listed(asked.values("sec-websocket-protocol"))
        protocol = choose(offered, served, "v4.channel.k8s.io" if wanted.kind == PORT_FORWARD else "channel.k8s.io")
        keys, version = asked.values("sec-websocket-key"), asked.values("sec-websocket-version")
        if protocol is None or not keys or version != ["13"]:
            why = f"unable to upgrade: server accepts {', '.join(served)}, of WebSocket version 13"
            await refuse(stream, asked.http, 400, why, {"Sec-WebSocket-Version": "13"})
            return
        headers = {"Upgrade": "websocket", "Sec-WebSocket-Accept": proof(keys[0])}
        await switch(stream, asked, headers | ({"Sec-WebSocket-Protocol": protocol} if offered else {}))
        websocket = WebSocket(stream, asked.early)
        if protocol == TUNNEL:
            await self._forward(stream, Link(WebSocketBytes(websocket), b""), wanted)
        elif wanted.kind == PORT_FORWARD:
            await self._forward(stream, Numbered(websocket, protocol), wanted)
        else:
            channels = WebSocketChannels(websocket, protocol, _expected(wanted) | {"resize"})
            await self._command(stream, channels, protocol, wanted)

    # Exec and attach

    async def _command(self, stream: Stream, channels: Channels, protocol: str, wanted: SessionRequest) -> None:
        timer = self.loop.call_later(STREAMS_S, stream.abort)
        try:
            if not await channels.ready():
                return
        finally:
            timer.cancel()
        run = self._execute if wanted.kind == EXEC else self._attach
        status = await run(stream, channels, wanted)
        if status is None:
            return
        watchdog = ClientWatchdog(self.loop, stream, self._idle_s, lambda: None)
        try:
            for kind in wanted.outputs:
                await channels.end(kind)
            if message := outcome(protocol, status):
                await channels.send("error", message)
            await channels.end("error")
            await channels.close()
        finally:
            watchdog.cancel()
        leaving = self.loop.spawn(stream.abort_after(LEAVE_S, STALLED_S), "leave")
        try:
            while (await channels.receive()).kind:
                pass
        finally:
            leaving.cancel()

    async def _execute(self, stream: Stream, channels: Channels, wanted: SessionRequest) -> Mapping[str, Any] | None:
        """The outcome; None when the client left before."""
        try:
            container = self._running(wanted)
            execution = await self._blocking(self._pool, lambda: Execution(self._engine, container, wanted))
        except (RpcError, OSError, ValueError) as error:
            return failed(f"error executing command in container: {error}")
        if wanted.tty:
            self._pool.submit(execution.resize_after_start)
        finished = False
        try:
            finished = await RemoteCommand(self.loop, channels, execution.streams, stream, self._idle_s).run()
        finally:
            end = None if finished else self._blocking(self._ends, execution.terminate)
        if end is not None:
            stream.abort()  # the end takes seconds when the command ignores SIGHUP
            await end  # the command's descriptors count as the session's until then
            return None
        try:
            return ended(await self._blocking(self._pool, execution.result))
        except ExecFailed as error:
            return failed(f"error executing command in container: {error}")

    async def _attach(self, stream: Stream, channels: Channels, wanted: SessionRequest) -> Mapping[str, Any] | None:
        try:
            container = self._running(wanted)
            attachment = await self._blocking(self._pool, lambda: Attachment(self._engine, container, wanted))
        except (RpcError, OSError, MonitorError) as error:
            return failed(f"error attaching to container: {error}")
        try:
            finished = await RemoteCommand(self.loop, channels, attachment.streams, stream, self._idle_s).run()
        finally:
            attachment.close()
        return ended(0) if finished else None

    def _running(self, wanted: SessionRequest) -> Container:
        container = self._engine.state.containers.get(wanted.target)
        container.require_running()
        return container

    # Port-forward

    async def _forward(self, stream: Stream, carrier: Link | Numbered, wanted: SessionRequest) -> None:
        sandbox = self._engine.state.sandboxes.get(wanted.target)
        ports = Ports(self.loop, sandbox.record.namespaces.get("network", ""), sandbox.record.id)
        left: Future[None] = Future()
        watchdog = ClientWatchdog(self.loop, stream, self._idle_s, lambda: left.set(None))
        if isinstance(carrier, Link):
            session = self.loop.spawn(
                SpdyForward(self.loop, carrier, ports, watchdog, self._limits).run(), "port-forward"
            )
        else:
            serving = forward_by_websocket(self.loop, carrier, ports, wanted.ports, watchdog, self._limits)
            session = self.loop.spawn(serving, "port-forward")
        try:
            await first_of(session, left)
        finally:
            watchdog.cancel()
            session.cancel()


def _expected(wanted: SessionRequest) -> frozenset[str]:
    return frozenset({"error", *wanted.outputs, *(("stdin",) if wanted.stdin else ())})
