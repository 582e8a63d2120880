"""A runtime's streaming server that speaks SPDY only, like the ones in Go. A test supplies the use of the streams.

As in Go there are no flow control windows, and data for a stream before its reply is dropped. At the end all streams
are reset and the connection is closed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable

from actors._net.streaming.spdy import DICTIONARY, Data, Event, Opened, Pinged, Reset, Session

SUCCESS = {"metadata": {}, "status": "Success"}
PATIENCE_S = 20.0


def status(code: int) -> dict[str, object]:
    """A status with an exit code, as runtimes send it."""
    if not code:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class Peer:
    """One client's connection, after the upgrade."""

    def __init__(self, connected: socket.socket, early: bytes) -> None:
        self.socket = connected
        self._session = Session()
        self._packer = zlib.compressobj(zdict=DICTIONARY)
        self._events: list[Event] = list(self._session.feed(early))
        self.streams: dict[str, int] = {}
        self.came: dict[str, bytes] = defaultdict(bytes)
        self.frames: list[tuple[str, bytes]] = []
        self.ended: set[str] = set()
        self.pings = 0
        self.gone = False
        self.accepts = True

    def turn(self) -> None:
        """Receive the next event."""
        while not self._events:
            received = b""
            with contextlib.suppress(OSError):
                received = self.socket.recv(65536)
            if not received:
                self.gone = True
                return
            self._events = list(self._session.feed(received))
        event = self._events.pop(0)
        kinds = {number: kind for kind, number in self.streams.items()}
        if isinstance(event, Opened):
            self.streams[event.headers["streamtype"]] = event.stream
            if self.accepts:
                self.accept(event.stream)
        elif isinstance(event, Data) and event.stream in kinds:
            kind = kinds[event.stream]
            self.came[kind] += event.content
            if event.content:
                self.frames.append((kind, event.content))
            if event.end:
                self.ended.add(kind)
        elif isinstance(event, Reset):
            self.ended.add(kinds.get(event.stream, ""))
        elif isinstance(event, Pinged):
            self.pings += 1
            self.send(event.answer)

    def until(self, ready: Callable[[], bool]) -> bool:
        """True when it came so far before the client was gone."""
        deadline = time.monotonic() + PATIENCE_S
        while not ready() and not self.gone:
            assert time.monotonic() < deadline, "it did not come so far"
            self.turn()
        return ready()

    def accept(self, stream: int) -> None:
        """Take a stream, in headers packed with the dictionary."""
        packed = self._packer.compress(struct.pack(">I", 0)) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self.send(struct.pack(">III", 0x80030002, 4 + len(packed), stream) + packed)

    def send(self, frame: bytes) -> None:
        """Send a whole frame; do nothing when the client is gone."""
        with contextlib.suppress(OSError):
            self.socket.sendall(frame)

    def say(self, kind: str, content: bytes, *, end: bool = False) -> None:
        """Send data on a stream."""
        self.send(Session.data(self.streams[kind], content, end=end))

    def finish(self, told: dict[str, object] | bytes | None = None) -> None:
        """The outcome, and the end as Go's server has it: no stream is ended, all are reset."""
        content = told if isinstance(told, bytes) else json.dumps(told or SUCCESS).encode()
        if content:
            self.say("error", content)
        for number in self.streams.values():
            self.send(Session.reset(number))
        self.send(Session.go_away())


class SpdyRuntime:
    """Serves each client with `act`, in a thread; `peers` and `heads` are what came."""

    def __init__(
        self,
        act: Callable[[Peer], None],
        version: str = "v4.channel.k8s.io",
        answer: bytes = b"",
        *,
        buffer: int = 0,
    ) -> None:
        """`answer` is said instead of yes; `version` may be empty for a server that names none."""
        self._act, self._answer, self._version = act, answer, version
        self._listener = socket.create_server(("127.0.0.1", 0))
        if buffer:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/exec/token"
        self.heads: list[bytes] = []
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                with connected:
                    self._one(connected)

    def _one(self, connected: socket.socket) -> None:
        connected.settimeout(PATIENCE_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go's are
        head = b""
        while b"\r\n\r\n" not in head:
            if not (part := connected.recv(65536)):
                return  # the client has gone
            head += part
        head, _, early = head.partition(b"\r\n\r\n")
        self.heads.append(head)
        if self._answer:
            connected.sendall(self._answer)
            return
        version = f"X-Stream-Protocol-Version: {self._version}\r\n" if self._version else ""
        connected.sendall(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n{version}\r\n".encode()
        )
        peer = Peer(connected, early)
        self.peers.append(peer)
        try:
            self._act(peer)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.done.set()

    def close(self) -> None:
        """No more clients; what `act` found wrong is raised here."""
        # The thread closes it. With a close here, a late accept would take the next runtime's client by the old number.
        self._listener.shutdown(socket.SHUT_RDWR)
        if self.errors:
            raise self.errors[0]
