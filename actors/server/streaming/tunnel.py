"""Carries port-forward's SPDY bytes between WebSocket messages and the runtime, unchanged (KEP-4006)."""

from __future__ import annotations

from actors._net.streaming.websocket import WebSocketBytes
from actors.server.streaming.bridge import Bridge, Ends


class Tunnel(Bridge):
    """One session of port-forward. The runtime and the client parse the SPDY frames; this process does not."""

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
                continue  # the runtime closed: the other direction ends after the rest of its output
