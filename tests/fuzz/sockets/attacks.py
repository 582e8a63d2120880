"""Hostile clients of a running agent's sockets and ports. Each sends a bounded number of inputs."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import zmq

from proto.wire import codec
from proto.wire.envelope import Kind
from tests.fuzz.mutation import Mutator, mutations
from tests.fuzz.parsers.wire import MSGPACK, TARGETS
from tests.fuzz.target import Target

ATTEMPTS = 5
ANSWER_S = 0.05
"""For the bytes of an answer: nothing depends on it, the client only gives the server time to read."""
_BODIES = next(target for target in TARGETS if target.name == "message-body")
_HTTP_WORDS = (
    b"Content-Length: -1\r\n", b"Content-Length: " + b"9" * 5000 + b"\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Upgrade: SPDY/3.1\r\nConnection: Upgrade\r\n", b"Host: evil.test\r\n", b" folded\r\n", b"\n", b"-5\r\n",
    b"Expect: 100-continue\r\n",
)  # fmt: skip


def sockets(run_dir: Path) -> list[Path]:
    """Every Unix socket of the agent."""
    return sorted(path for path in run_dir.iterdir() if path.is_socket())


def send_frames(path: Path, count: int, seed: int) -> None:
    """Multi-part messages to a ZeroMQ socket: mutated bodies below good headers, mutated headers, odd frame counts.

    They come from a process of its own. When the agent cuts a connection within a message, libzmq may end the client by
    a failed assertion. Other messages are sent then.
    """
    for attempt in range(ATTEMPTS):
        command = [sys.executable, "-m", __name__, str(path), str(count), str(seed + 1000 * attempt)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 + count / 100)
        if done.returncode != -signal.SIGABRT:
            break
    assert done.returncode == 0, done.stderr


def _send_frames(path: Path, count: int, seed: int) -> None:
    source = random.Random(seed)
    kind = zmq.XSUB if path.suffix == ".tap" or path.name == "world.sock" else zmq.DEALER
    context = zmq.Context()
    with context.socket(kind) as client:
        client.set(zmq.LINGER, 0)
        client.set(zmq.SNDTIMEO, 1000)
        client.connect(f"ipc://{path}")
        for message in itertools.islice(_messages(source, path.stem), count):
            with contextlib.suppress(zmq.Again):
                client.send_multipart(message)
    context.destroy(linger=0)


ENDS = {"Stop", "StopAgent", "RestartActor", "StopActor", "KillActor", "Evaluate"}
"""Messages that end a process as they should: a valid one by chance is no fault."""


def _messages(source: random.Random, receiver: str) -> Iterator[Sequence[bytes]]:
    from proto.wire.errors import ProtocolError  # noqa: PLC0415
    from proto.wire.message import types_for  # noqa: PLC0415

    try:
        types = types_for({"control": "supervisor", "world": "supervisor"}.get(receiver, receiver))
        names = sorted(types.keys() - ENDS)
    except (ImportError, ProtocolError):
        names = ["Describe"]
    bodies = mutations(_BODIES, source.randrange(1 << 30))
    for number in itertools.count(1):
        body = next(bodies)[2:]
        kind = source.choice(list(Kind))
        header = codec.encode_header(kind, source.choice(names), source.choice(("test", "config", "")), 1, number)
        if source.random() < 0.2:
            header = source.choice((*MSGPACK, b"", header[:-3], header * 40))
        extra = [source.randbytes(source.randrange(40)) for _ in range(source.choice((0, 0, 0, 1, 5, 200)))]
        yield source.choice(
            ([header, body], [header, body], [header], [body], [header, body, *extra], [b"", *extra, b"\1"])
        )


def send_raw(path: Path, count: int, seed: int) -> None:
    """Bytes that are no ZMTP, a connection for each; half of them are left open until the end."""
    source = random.Random(seed)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(1.0)
            with contextlib.suppress(OSError):
                client.connect(str(path))
                client.sendall(
                    source.choice((b"\xff" + source.randbytes(9) + b"\x7f\x03", source.randbytes(300), b"GET /\r\n"))
                )
                if source.random() < 0.5:
                    client.close()


def http_target(requests: Sequence[bytes]) -> Target:
    """Mutations of these requests."""
    return Target("http", lambda _: None, requests, _HTTP_WORDS)


def send_requests(port: int, target: Target, count: int, seed: int, *, tls: bool = False) -> None:
    """A connection for each mutated request; what is answered is read for a moment."""
    for data in itertools.islice(mutations(target, seed), count):
        with contextlib.suppress(OSError), _connected(port, tls) as client:
            client.sendall(data)
            while client.recv(65536):
                pass


def send_websocket(port: int, handshake: bytes, target: Target, count: int, seed: int, *, tls: bool = False) -> None:
    """A good handshake, then mutated frames, a session for each."""
    mutator = Mutator(random.Random(seed), target)
    for data in itertools.islice(mutations(target, seed), count):
        with contextlib.suppress(OSError), _connected(port, tls) as client:
            client.sendall(handshake)
            client.recv(65536)
            client.sendall(mutator.change(data))
            while client.recv(65536):
                pass


@contextlib.contextmanager
def _connected(port: int, tls: bool) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 2.0) as plain:
        plain.settimeout(2.0)
        if not tls:
            plain.settimeout(ANSWER_S)
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as client:
            client.settimeout(ANSWER_S)
            yield client


if __name__ == "__main__":
    _send_frames(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
