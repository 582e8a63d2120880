"""The remote_console actor: opens the TCP port for consoles, and forwards their requests to the actors.

No state but the keys on disk. After a kill, consoles connect again.
"""

from __future__ import annotations

from typing import Any

from actors._base import Actor, handles
from actors._base.messaging.futures import Future
from actors.remote_console.gateway import Gateway
from proto.agent import registry
from proto.agent.actor import Ping, Pong
from proto.wire.errors import Refused
from proto.wire.message import Message, Request


class RemoteConsole(Actor):
    """The gateway does the work in its thread; the mailbox is for the watchdog and the consoles."""

    name = "remote_console"
    asks = registry.NAMES - {name, "server"}
    """All actors, for consoles. The server is asked, too: it asks this actor only for metrics, and neither waits."""

    async def rebuild(self) -> None:
        """Open the port. A port in use ends the actor, which is tried again."""
        address, _, number = self.settings.console_address.rpartition(":")
        place = (address.strip("[]"), int(number))
        self.gateway = Gateway(self.settings.run_dir, self.settings.root_dir, place, self._forward, self._send)

    def _forward(self, target: str, request: Request[Any], timeout_s: float) -> Future[Any]:
        return self.bus.ask(target, request, timeout_s)

    def _send(self, target: str, message: Message) -> None:
        if target == self.name:
            raise Refused("NotFound", "cannot reach this actor from a remote console")
        self.bus.tell(target, message)

    def on_ready(self) -> None:
        """Serve the port."""
        self.gateway.start(lambda error: self.post(self.crash, error))

    def on_shutdown(self) -> None:
        """End every connection."""
        self.gateway.stop()

    def describe(self) -> dict[str, Any]:
        """Port, connections by key, and counts."""
        connections = [one.key.name for one in list(self.gateway.connections.values()) if one.key is not None]
        return {"port": self.gateway.number, "connected": sorted(connections), **self.gateway.counts}

    @handles(Ping)
    async def on_ping_with_gateway(self, _: Ping) -> Pong:
        """Answer after the gateway's loop has run, so that the watchdog notices a loop that hangs."""
        answered: Future[None] = Future()
        self.gateway.call(lambda: answered.set(None))
        await answered
        return Pong(mailbox=self.mailbox_depth())


ACTOR = RemoteConsole
