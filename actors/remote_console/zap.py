"""The ZAP handler: decides which CURVE keys may connect (https://rfc.zeromq.org/spec/27/)."""

from __future__ import annotations

from collections.abc import Callable

import zmq
from zmq.utils import z85

ENDPOINT = "inproc://zeromq.zap.01"
VERSION = b"1.0"

Decide = Callable[[int, str], str]
"""From the connection's number and a client's public key to the key's name; empty: refused."""


class Zap:
    """Answers the requests of ZeroMQ's handshakes. Each connection has its number as ZAP domain."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], decide: Decide) -> None:
        self.socket = context.socket(zmq.REP)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(ENDPOINT)
        self._decide = decide

    def serve(self) -> None:
        """Answer every request that has arrived."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self.answer(frames))

    def answer(self, frames: list[bytes]) -> list[bytes]:
        """The reply: 200 with the key's name, 400 for any other key or mechanism."""
        request = frames[1] if len(frames) > 1 else b""
        name = ""
        if len(frames) == 7 and frames[0] == VERSION and frames[5] == b"CURVE" and len(frames[6]) == 32:
            name = self._decide(int(frames[2]), z85.encode(frames[6]).decode())
        status, text = (b"200", b"OK") if name else (b"400", b"unknown key")
        return [VERSION, request, status, text, name.encode(), b""]
