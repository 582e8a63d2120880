"""The loop of the TCP port, in a thread of its own: accepts, authenticates, checks roles, forwards typed requests.

It never waits for an actor: answers come back through a queue. A client can delay only itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from actors._base.messaging.futures import Future
from actors.remote_console import keys, limits
from actors.remote_console.audit import Audit, described
from actors.remote_console.connection import Connection, Over
from actors.remote_console.limits import Asked, Invalid
from actors.remote_console.zap import Zap
from proto.agent.remote_console import TAP, AuthorizedKey
from proto.common.logs import Limited
from proto.common.machine.listening import listen
from proto.common.token_bucket import TokenBucket
from proto.wire import codec
from proto.wire.envelope import Header, Kind
from proto.wire.errors import ProtocolError, Refused, to_failure
from proto.wire.message import Done, Message, Request

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Between two looks at the file of keys, and at the connections' times."""
BACKLOG = 16
TOO_MANY = "TooManyRequests"

Ask = Callable[[str, Request[Any], float], Future[Any]]
Tell = Callable[[str, Message], None]


class Gateway:
    """Owns the port and its connections. `start`, `stop` and `call` are for other threads."""

    def __init__(self, run_dir: str, root_dir: str, address: tuple[str, int], ask: Ask, tell: Tell) -> None:
        """Open the port. Raises OSError and KeyProblem."""
        self._run_dir, self._folder = run_dir, keys.directory(root_dir)
        self._ask, self._tell = ask, tell
        self._server = keys.server_key(self._folder)
        self._listener = listen(*address, BACKLOG)
        self._listener.setblocking(False)
        self.number = self._listener.getsockname()[1]
        for left in Path(run_dir).glob("remote_console-*.ipc"):
            left.unlink(missing_ok=True)
        self._audit = Audit(self._folder)
        self._complaints = Limited(log)
        self.connections: dict[int, Connection] = {}
        self.counts = {"accepted": 0, "refused": 0, "commands": 0, "forbidden": 0, "invalid": 0}
        self._authorized: dict[str, AuthorizedKey] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._accepts = TokenBucket(limits.ACCEPTS_PER_S, limits.ACCEPTS_BURST)
        self._last_number = 0
        self._work: deque[Callable[[], object]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._failed: Callable[[BaseException], None] = lambda _: None

    # From any thread

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Run the loop; `failed` gets an error that ends it."""
        self._failed = failed
        threading.Thread(target=self._run, name="gateway", daemon=True).start()

    def call(self, work: Callable[[], object]) -> None:
        """Run a function in the loop's thread."""
        self._work.append(work)
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """End the loop and every connection."""

        def end() -> None:
            self._stopping = True

        self.call(end)

    # The loop

    def _run(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap = Zap(self._context, self._decide)
        try:
            while not self._stopping:
                self._look_at_keys()
                self._run_once()
        except BaseException as error:
            self._failed(error)
        finally:
            for connection in list(self.connections.values()):
                self._end(connection, "the remote console stops")
            self._listener.close()
            self._audit.close()
            self._context.destroy(linger=0)

    def _run_once(self) -> None:
        now = time.monotonic()
        poller = zmq.Poller()
        poller.register(self._wake_fd, zmq.POLLIN)
        poller.register(self._zap.socket, zmq.POLLIN)
        wait_s = LOOK_S
        if len(self.connections) < limits.MOST_CONNECTIONS or self._unknown():
            # Past the rate, clients wait in the kernel's queue: others with wrong keys must not have them refused.
            if (accepts_in_s := self._accepts.wait_s(now)) > 0:
                wait_s = min(wait_s, accepts_in_s)
            else:
                poller.register(self._listener, zmq.POLLIN)
        for connection in self.connections.values():
            paused_s = connection.register(poller, now)
            wait_s = min(wait_s, paused_s if paused_s is not None else wait_s)
            for stream in connection.streams.values():
                poller.register(stream, zmq.POLLIN)
        ready: dict[Any, int] = dict(poller.poll(max(1, int(wait_s * 1000))))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
            while self._work:
                self._work.popleft()()
        self._zap.serve()
        if self._listener.fileno() in ready:
            self._accept(now)
        for connection in list(self.connections.values()):
            if connection.number in self.connections:  # a message of one may reveal that another's key was revoked
                self._serve(connection, ready, now)
        self._audit.summarize()

    def _serve(self, connection: Connection, ready: dict[Any, int], now: float) -> None:
        try:
            connection.pump(ready)
            connection.check_time(now)
            for frames in connection.messages():
                self._take(connection, frames)
            for name, stream in connection.streams.items():
                if stream in ready:
                    self._forward(connection, name, stream)
        except Over as over:
            self._end(connection, str(over))

    def _accept(self, now: float) -> None:
        try:
            tcp, _ = self._listener.accept()
        except OSError:
            return
        full = len(self.connections) >= limits.MOST_CONNECTIONS and not self._unknown()
        if full or not self._accepts.try_take(now):
            self.counts["refused"] += 1
            tcp.close()
            return
        self._last_number += 1
        try:
            connection = Connection(self._context, self._last_number, tcp, self._run_dir, self._server)
        except (OSError, zmq.ZMQError) as error:
            self._complaints.log(logging.WARNING, "cannot serve a console: %s", error)
            tcp.close()
            return
        # Not the newcomer: it may have a key, and the older ones have had their time to show one.
        oldest = limits.displaced(self._unknown(), connection.source, len(self.connections))
        if oldest is not None:
            self._end(self.connections[oldest], "a newer connection took the place of one without a key")
        self.connections[connection.number] = connection
        self.counts["accepted"] += 1

    def _unknown(self) -> dict[int, str]:
        """The sources of connections without a key, by number, oldest first."""
        return {number: one.source for number, one in self.connections.items() if one.key is None}

    def _end(self, connection: Connection, why: str) -> None:
        if self.connections.pop(connection.number, None) is None:
            return
        connection.close()
        key = connection.key
        if key is None:
            self.counts["refused"] += 1
        name, role = (key.name, key.role) if key is not None else ("", "")
        self._audit.connection(connection.address, f"ended: {why}", name, role)

    # Keys

    def _look_at_keys(self) -> None:
        stamp = keys.stamp(self._folder)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._authorized = {key.public: key for key in keys.authorized(self._folder)}
        except keys.KeyProblem as error:
            log.error("%s: no console may connect", error)
            self._authorized = {}
        for connection in list(self.connections.values()):
            key = connection.key
            if key is not None and self._authorized.get(key.public) != key:
                self._end(connection, "its key was revoked")

    def _decide(self, number: int, public: str) -> str:
        self._look_at_keys()
        connection, key = self.connections.get(number), self._authorized.get(public)
        if connection is None or connection.key is not None:
            return ""
        if key is None:
            self._audit.connection(connection.address, "refused: unknown key")
            return ""
        if sum(one.key == key for one in self.connections.values()) >= limits.MOST_PER_KEY:
            self._audit.connection(connection.address, "refused: too many connections of this key", key.name, key.role)
            return ""
        connection.key = key
        self._audit.connection(connection.address, "connected", key.name, key.role)
        return key.name

    # Requests

    def _take(self, connection: Connection, frames: list[bytes]) -> None:
        if connection.key is None:
            raise Over("it sent a message without a key")
        self._look_at_keys()
        if connection.number not in self.connections:
            raise Over("its key was revoked")
        try:
            target, header, body = limits.parse(frames)
        except Invalid as error:
            self.counts["invalid"] += 1
            self._complaints.log(logging.WARNING, "invalid message of %s: %s", connection.key.name, error)
            return
        began = time.monotonic()
        try:
            asked = self._checked(connection, target, header, body)
        except (Refused, ProtocolError) as error:
            is_forbidden = isinstance(error, Refused) and error.reason == "Forbidden"
            self.counts["forbidden" if is_forbidden else "invalid"] += 1
            if isinstance(error, Refused) and error.reason == TOO_MANY:
                self._complaints.log(logging.WARNING, "console %s: %s", connection.key.name, error)
                self._answer(connection, target, header, error)
                return
            self._finish(connection, target, header, None, error, began)
            return
        self.counts["commands"] += 1
        self._carry_out(connection, asked, began)

    def _checked(self, connection: Connection, target: str, header: Header, body: bytes) -> Asked:
        assert connection.key is not None
        if not connection.rates.requests.try_take(time.monotonic()):
            raise Refused(TOO_MANY, f"at most {limits.REQUESTS_PER_S:g} requests a second; send it later")
        asked = limits.check(target, header, body, connection.key.role)
        if connection.asks >= limits.MOST_ASKS:
            raise Refused(TOO_MANY, f"{limits.MOST_ASKS} requests of this console wait already")
        if asked.stream and len(connection.streams) >= limits.MOST_STREAMS:
            raise Refused(TOO_MANY, f"this console follows {limits.MOST_STREAMS} streams already")
        return asked

    def _carry_out(self, connection: Connection, asked: Asked, began: float) -> None:
        target, header, message = asked.target, asked.header, asked.message
        if asked.stream:
            self._subscribe(connection, asked.stream)
            self._finish(connection, target, header, None, Done(), began)
        elif isinstance(message, Request) and header.kind == Kind.ASK:
            connection.asks += 1
            future = self._ask(target, message, limits.timeout_s(asked))
            future.add_done_callback(lambda over: self.call(lambda: self._answered(connection, asked, over, began)))
        elif message is not None and header.kind == Kind.TELL and not isinstance(message, Request):
            self._tell(target, message)
            self._finish(connection, target, header, message, Done(), began)
        else:
            problem = ProtocolError(f"{header.type} is sent in the wrong way")
            self._finish(connection, target, header, message, problem, began)

    def _answered(self, connection: Connection, asked: Asked, over: Future[Any], began: float) -> None:
        connection.asks -= 1
        try:
            result: Message | Exception = over.result(0)
        except Exception as error:
            result = error
        try:
            self._finish(connection, asked.target, asked.header, asked.message, result, began)
        except Over as end:
            self._end(connection, str(end))

    def _finish(
        self,
        connection: Connection,
        target: str,
        header: Header,
        message: Message | None,
        result: Message | Exception,
        began: float,
    ) -> None:
        """Audit a command, and answer it if it asks. Raises Over."""
        key = connection.key
        assert key is not None
        said = "ok" if not isinstance(result, Exception) else f"{type(result).__name__}: {result}"[:200]
        command = described(target, header.type, message)
        self._audit.command(key.name, key.role, connection.address, command, said, (time.monotonic() - began) * 1000)
        self._answer(connection, target, header, result)

    def _answer(self, connection: Connection, target: str, header: Header, result: Message | Exception) -> None:
        if header.kind == Kind.ASK and connection.number in self.connections:
            connection.answer([target.encode(), *answer_frames(result, header.correlation)])

    # Streams

    def _subscribe(self, connection: Connection, name: str) -> None:
        if name in connection.streams:
            return
        stream = self._context.socket(zmq.SUB)
        stream.set(zmq.LINGER, 0)
        stream.set(zmq.RCVHWM, 1000)
        stream.set(zmq.RECONNECT_IVL, 5)
        stream.set(zmq.RECONNECT_IVL_MAX, 100)
        stream.subscribe(b"")
        file = f"{name.removeprefix(TAP)}.tap" if name.startswith(TAP) else f"{name}.sock"
        stream.connect(f"ipc://{self._run_dir}/{file}")
        connection.streams[name] = stream

    def _forward(self, connection: Connection, name: str, stream: Any) -> None:
        with contextlib.suppress(zmq.Again):
            for _ in range(64):
                connection.stream([name.encode(), *stream.recv_multipart(zmq.NOBLOCK)])


def answer_frames(result: Message | Exception, correlation: int) -> list[bytes]:
    """Header and body of an answer. An answer that is too large becomes an error."""
    answer: Any = to_failure(result) if isinstance(result, Exception) else result
    kind, name = (Kind.ERROR, "Failure") if isinstance(result, Exception) else (Kind.REPLY, type(result).__name__)
    body = codec.encode(answer)
    if len(body) > limits.MOST_ANSWER_BYTES:
        problem = Refused(
            "TooLarge", f"the answer has {len(body)} bytes; a remote console gets {limits.MOST_ANSWER_BYTES}"
        )
        return answer_frames(problem, correlation)
    return [codec.encode_header(kind, name, "remote_console", 0, correlation), body]
