"""Port-forward by SPDY within WebSocket (KEP-4006): the messages carry the bytes of the runtime's connection."""

from __future__ import annotations

from actors._net.streaming.websocket import WebSocketBytes
from actors.server.streaming.bridge import Bridge, Ends


class Tunnel(Bridge):
    """Bytes both ways; what they say is between the client and the runtime."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends, text=False)
        self._bytes = WebSocketBytes(self._websocket)

    async def _from_runtime(self) -> None:
        while data := await self._runtime.read():
            await self._to_client(self._bytes.write(data))

    async def _from_client(self) -> None:
        while data := await self._bytes.read():
            try:
                await self._runtime.write(data)
            except OSError:
                continue  # it has hung up: the other direction ends with the last of what it said
