"""Sends Ping, Dump, GetMemory, Stop, SetFaults and SetVerbosity to an actor's inbox, and reads its answers.

Each incarnation has a DEALER socket of its own, so that a message to a dead one never reaches its successor.
"""

from __future__ import annotations

import contextlib
import logging

import zmq

from proto.agent.actor import Dump, Dumped, GetMemory, MemoryUse, Ping, Pong, SetFaults, SetVerbosity, Stop
from proto.agent.faults import Fault
from proto.common.logs import MOST_VERBOSITY, Limited
from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.errors import ProtocolError
from proto.wire.message import Message

log = logging.getLogger(__name__)

Answer = Pong | Dumped | MemoryUse
_ANSWERS: dict[str, type[Pong] | type[Dumped] | type[MemoryUse]] = {
    "Ping": Pong,
    "Dump": Dumped,
    "GetMemory": MemoryUse,
}
BATCH = 64
"""Answers read per iteration of the loop."""


class Link:
    """The socket to one incarnation. Requests are numbered; `read` matches answers to them."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.SNDHWM, 8)
        self.socket.connect(f"ipc://{path}")
        self._correlation = 0
        self._asked: dict[int, str] = {}
        self._complaints = Limited(log)

    def stop(self) -> None:
        """Tell it to stop."""
        self._send(Kind.TELL, Stop(), 0)

    def ping(self) -> None:
        """Ask for a Pong, which the actor's mailbox answers."""
        self._ask(Ping())

    def dump(self) -> None:
        """Ask for a Dumped, which the actor's I/O thread answers."""
        self._ask(Dump())

    def ask_for_memory(self) -> None:
        """Ask for a MemoryUse, which the actor's I/O thread answers."""
        self._ask(GetMemory())

    def set_verbosity(self, verbosity: int) -> None:
        """Set the actor's log verbosity."""
        self._send(Kind.ASK, SetVerbosity(v=min(verbosity, MOST_VERBOSITY)), 0)

    def set_faults(self, faults: tuple[Fault, ...]) -> None:
        """Give the actor all active faults."""
        self._send(Kind.TELL, SetFaults(faults=faults), 0)

    def _ask(self, request: Message) -> None:
        self._correlation += 1
        self._asked[self._correlation] = type(request).__name__
        self._send(Kind.ASK, request, self._correlation)

    def _send(self, kind: Kind, message: Message, correlation: int) -> None:
        header = codec.encode_header(kind, type(message).__name__, "supervisor", 0, correlation)
        with contextlib.suppress(zmq.Again):  # a full queue shows as a missed deadline
            self.socket.send_multipart([header, codec.encode(message)], zmq.NOBLOCK)

    def read(self) -> list[Answer]:
        """Every answer that has arrived. An answer that cannot be decoded is logged and dropped."""
        answers: list[Answer] = []
        for _ in range(BATCH):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            try:
                answer = self._answer(frames)
            except (ProtocolError, ValueError) as error:
                self._complaints.log(logging.WARNING, "cannot decode an answer: %s", error)
                continue
            if answer is not None:
                answers.append(answer)
        return answers

    def _answer(self, frames: list[bytes]) -> Answer | None:
        head, body = frames
        header = codec.decode_header(head)
        asked = self._asked.pop(header.correlation, None)
        if asked is None or header.kind != Kind.REPLY:
            return None
        return codec.decode(body, _ANSWERS[asked])

    def close(self) -> None:
        """Close the socket and drop unsent messages."""
        self.socket.close()
