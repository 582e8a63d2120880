"""The event stream: an XPUB socket on world.sock. Frames are [type name, header, body]; the type name is the topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import zmq

from proto.wire import codec
from proto.wire.envelope import Kind
from proto.wire.message import Message
from supervisor.sockets.restoring import Listening

log = logging.getLogger(__name__)

BATCH = 64
"""Subscriptions read per iteration of the loop."""
MAX_SUBSCRIPTION_BYTES = 4096

OnEvent = Callable[[Message], None]


class Publisher:
    """Publishes events of proto.agent.supervisor. The daemon publishes the PeerStates for each new subscriber."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: str, on_event: OnEvent | None) -> None:
        self.socket = context.socket(zmq.XPUB)
        self.socket.set(zmq.MAXMSGSIZE, MAX_SUBSCRIPTION_BYTES)
        self.socket.set(zmq.ONLY_FIRST_SUBSCRIBE, 1)
        self.socket.set(zmq.XPUB_VERBOSE, 1)  # else a second subscriber of the same topic gets no PeerStates
        self.listening = Listening(self.socket, path)
        self._on_event = on_event

    def publish(self, message: Message) -> None:
        """Send to all subscribers without waiting. A slow subscriber loses events."""
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
        """Read subscriptions. True when there is a new one."""
        subscribed = False
        for _ in range(BATCH):
            try:
                change, *others = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            subscribed |= not others and change[:1] == b"\x01"
        return subscribed
