"""References to actors of other processes, by name: the counterpart of Pykka's ActorRef."""

from __future__ import annotations

from typing import TypeVar

from actors._base.messaging.bus import Bus
from actors._base.messaging.futures import Future
from proto.wire.message import Message, Request

R = TypeVar("R", bound=Message)


class RemoteRef:
    """A peer by name; valid across its restarts. Usable from any thread of the process."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name

    def tell(self, message: Message) -> None:
        """Send without answer. While the peer restarts, the message waits in a bounded queue on this side. When that is
        full it is dropped and counted (`queue_full`). State is sent again when the peer has not received all tells."""
        self._bus.tell(self.name, message)

    def ask(self, request: Request[R], timeout_s: float = 5.0) -> Future[R]:
        """Send, and return a future of the answer.

        It fails with AskTimeout after `timeout_s`, or soon when the message or its answer was lost. It fails with
        ActorDead at once when the peer's incarnation ends. Refused: the peer refuses. ProtocolError: the peer cannot
        decode the message.
        """
        return self._bus.ask(self.name, request, timeout_s)

    def __repr__(self) -> str:
        return f"RemoteRef({self.name})"
