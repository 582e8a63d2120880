"""The event stream: an XPUB socket on world.sock. Frames are [type name, header, body]; the type name is the topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import zmq

from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message

log = logging.getLogger(__name__)

BATCH = 64
"""Of what subscribers send, before others of the supervisor's sockets get a turn."""
MOST_SUBSCRIPTION_BYTES = 4096

OnEvent = Callable[[Message], None]


class Publisher:
    """Publishes events of proto.agent.supervisor; whoever subscribes is owed a World."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: str, on_event: OnEvent | None) -> None:
        self.socket = context.socket(zmq.XPUB)
        self.socket.set(zmq.MAXMSGSIZE, MOST_SUBSCRIPTION_BYTES)
        self.socket.set(zmq.ONLY_FIRST_SUBSCRIBE, 1)
        self.socket.set(zmq.XPUB_VERBOSE, 1)  # else a second subscriber of the same topic gets no World
        self.socket.bind(f"ipc://{path}")
        self._on_event = on_event

    def publish(self, message: Message) -> None:
        """Send to who listens; never waits. A slow subscriber loses events and gets the next World."""
        name = type(message).__name__
        header = codec.encode_header(Kind.TELL, name, "supervisor", 0)
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart([name.encode(), header, codec.encode(message)], zmq.NOBLOCK)
        if self._on_event is not None:
            try:
                self._on_event(message)
            except Exception:
                log.exception("event hook failed on %s", name)

    def new_subscribers(self) -> bool:
        """Take what subscribers said; whether one subscribed."""
        subscribed = False
        for _ in range(BATCH):
            try:
                change, *others = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            subscribed |= not others and change[:1] == b"\x01"
        return subscribed
