"""A connection after its upgrade: bytes both ways, untouched, until the runtime or the client has enough.

The runtime's word is the last one. A command may end without having read its input: what it said before that goes to
the client, whatever could not be sent to the runtime any more. Of a client that sends nothing more the runtime is told
so, and is given a moment for what it has yet to say.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from actors._base.messaging.futures import Future
from actors._net.stream import Stream

log = logging.getLogger(__name__)

BLOCK = 64 * 1024
"""Small enough that malloc has it at hand."""
LAST_WORDS_S = 5.0
"""For the runtime, once its client sends nothing more: Kubernetes' clients go on sending or are gone."""


async def hand_over(client: Stream, runtime: Stream, early: bytes, head: bytes, idle_s: float) -> None:
    """Serve both until either end has enough; `early` is what came with the request, `head` the runtime's answer."""
    loop = client.loop
    idle = _Idle(loop, idle_s, client, runtime)
    pumps = []
    try:
        if early:
            await runtime.write(early)
        await client.write(head)
        over: Future[None] = Future()
        pumps.append(loop.spawn(_to_client(runtime, client, idle, over), "pump out"))
        pumps.append(loop.spawn(_to_runtime(client, runtime, idle, over), "pump in"))
        await over
    finally:
        for pump in pumps:
            pump.cancel()
        idle.cancel()
        runtime.close()
    await client.end()


async def _to_client(runtime: Stream, client: Stream, idle: _Idle, over: Future[None]) -> None:
    try:
        while data := await runtime.read(BLOCK):
            idle.touch()
            await client.write(data)
    except (OSError, ValueError) as error:
        log.debug("a handed over connection ended: %s", error)
    finally:
        over.set(None)


async def _to_runtime(client: Stream, runtime: Stream, idle: _Idle, over: Future[None]) -> None:
    try:
        while data := await client.read(BLOCK):
            idle.touch()
            try:
                await runtime.write(data)
            except OSError:
                return  # it has hung up: the other direction ends with the last of what it said
    except (OSError, ValueError) as error:
        log.debug("the client of a handed over connection is gone: %s", error)
        over.set(None)
        return
    runtime.end_writing()
    await client.loop.sleep(LAST_WORDS_S)
    over.set(None)


class _Idle:
    """Cuts both streams when nothing has come through for too long."""

    def __init__(self, loop: Any, seconds: float, *streams: Stream) -> None:
        self._loop, self._seconds, self._streams = loop, seconds, streams
        self._last = time.monotonic()
        self._timer = loop.call_later(seconds, self._look) if seconds > 0 else None

    def touch(self) -> None:
        """Something has come."""
        self._last = time.monotonic()

    def _look(self) -> None:
        left = self._last + self._seconds - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        for stream in self._streams:
            stream.abort()

    def cancel(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
