"""The remote counterpart of Pykka's ActorRef: `tell`, `ask`, futures, by the actor's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from actors._base.messaging.futures import Future
from proto.wire.message import Message, Request

if TYPE_CHECKING:
    from actors._base.messaging.bus import Bus

R = TypeVar("R", bound=Message)


class RemoteRef:
    """A peer by name; valid across its restarts. Usable from any thread of the process."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name

    def tell(self, message: Message) -> None:
        """Send without answer. Waits in this side's bounded queue while the peer restarts; past the bound it is dropped
        and counted (`queue_full`), since every state is re-sent when the peer starts."""
        self._bus.tell(self.name, message)

    def ask(self, request: Request[R], timeout_s: float = 5.0) -> Future[R]:
        """Send and get a future of the answer.

        It fails with AskTimeout after `timeout_s`, with ActorDead at once when the peer's incarnation ends, with
        Refused when the peer says no, with ProtocolError when it does not understand.
        """
        return self._bus.ask(self.name, request, timeout_s)

    def __repr__(self) -> str:
        return f"RemoteRef({self.name})"
