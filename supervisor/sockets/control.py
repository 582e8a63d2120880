"""The control socket: a ROUTER on control.sock for the children's Ready and the requests of commands.

Frames are [header, body]. This module decodes messages and sends answers; `core.requests` carries requests out. No
input can stop the supervisor.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zmq

from proto.common.logs import Limited
from proto.wire import codec
from proto.wire.envelope import Header, Kind
from proto.wire.errors import ProtocolError, to_failure
from proto.wire.message import Message, type_named
from supervisor.sockets.restoring import Listening

log = logging.getLogger(__name__)

BATCH = 64
"""Messages read per iteration of the loop, so that a flood does not delay other work."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The address of an answer."""

    identity: bytes
    correlation: int
    request: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message and its sender; `asker` is None for a TELL."""

    message: Message
    header: Header
    asker: Asker | None


class Control:
    """The socket. `dropped` counts messages that could not be decoded, by cause."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.set(zmq.MAXMSGSIZE, 1024 * 1024)
        self.listening = Listening(self.socket, path)
        self.dropped: Counter[str] = Counter()
        self._complaints = Limited(log)

    def read(self) -> Iterator[Received]:
        """Read and decode messages one by one, at most `BATCH`. The others stay in the socket."""
        for _ in range(BATCH):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            one = self._decode(frames)
            if one is not None:
                yield one

    def _decode(self, frames: list[bytes]) -> Received | None:
        if len(frames) != 3:
            self._drop("undecodable", f"{len(frames)} frames instead of identity, header, body")
            return None
        identity, head, body = frames
        try:
            header = codec.decode_header(head)
        except ProtocolError as error:
            self._drop("undecodable", str(error))
            return None
        if header.kind not in (Kind.TELL, Kind.ASK):
            self._drop("unexpected_kind", f"kind {header.kind} from {header.source}")
            return None
        asker = Asker(identity, header.correlation, header.type) if header.kind == Kind.ASK else None
        try:
            message: Message = codec.decode(body, type_named("supervisor", header.type))
        except ProtocolError as error:
            self._drop("undecodable", f"{header.type} from {header.source}: {error}")
            self.answer(asker, error)
            return None
        return Received(message, header, asker)

    def _drop(self, cause: str, what: str) -> None:
        self.dropped[cause] += 1
        self._complaints.log(logging.WARNING, "cannot handle a message (%s): %s", cause, what)

    def answer(self, asker: Asker | None, answer: Message | Exception) -> None:
        """Send an answer, unless `asker` is None (a TELL). An asker that has disconnected is ignored."""
        if asker is None:
            return
        if isinstance(answer, Exception):
            self._send(asker, Kind.ERROR, "Failure", to_failure(answer))
        else:
            self._send(asker, Kind.REPLY, type(answer).__name__, answer)

    def _send(self, asker: Asker, kind: Kind, name: str, body: Any) -> None:
        header = codec.encode_header(kind, name, "supervisor", 0, asker.correlation)
        with contextlib.suppress(zmq.ZMQError):
            self.socket.send_multipart([asker.identity, header, codec.encode(body)], zmq.NOBLOCK)
