"""Copies bytes between client and runtime after an upgrade, until either side closes.

A command may end without reading its input: its output still goes to the client when sending to the runtime fails.
When the runtime closes, the client gets the rest of the output before its connection is closed.
When the client stops sending, the runtime is told so and has LAST_OUTPUT_S for the rest of its output.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from actors._base.messaging.futures import Future
from actors._net.stream import Stream
from proto.common import logs

log = logging.getLogger(__name__)
_limited_log = logs.Limited(log)
"""Limited over all streams, because clients can cause these messages."""

BLOCK = 64 * 1024
"""Small enough that malloc reuses it without a system call."""
STALLED_S = 30.0
"""A client that takes nothing of the last output for this long is disconnected."""
LAST_OUTPUT_S = 5.0
"""Time for the runtime's output after the client stopped sending. Kubernetes' clients keep sending until they leave."""


async def proxy_streams(client: Stream, runtime: Stream, early: bytes, head: bytes, idle_s: float) -> None:
    """Copy until either side closes. `early` is what followed the client's request, `head` the runtime's answer."""
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
    await client.end(STALLED_S)


async def _to_client(runtime: Stream, client: Stream, idle: _Idle, over: Future[None]) -> None:
    try:
        while data := await runtime.read(BLOCK):
            idle.touch()
            await client.write(data)
    except (OSError, ValueError) as error:
        log.debug("an upgraded connection ended: %s", error)
    except Exception:  # no task awaits a pump: an exception that leaves it would end the actor
        _limited_log.log(logging.ERROR, "an upgraded connection was cut off", exc_info=True)
    finally:
        over.set(None)


async def _to_runtime(client: Stream, runtime: Stream, idle: _Idle, over: Future[None]) -> None:
    try:
        while data := await client.read(BLOCK):
            idle.touch()
            try:
                await runtime.write(data)
            except OSError:
                return  # the runtime closed: the other direction ends after the rest of its output
    except (OSError, ValueError) as error:
        log.debug("the client of an upgraded connection is gone: %s", error)
        over.set(None)
        return
    except Exception:  # see `_to_client`
        _limited_log.log(logging.ERROR, "an upgraded connection was cut off", exc_info=True)
        over.set(None)
        return
    runtime.end_writing()
    await client.loop.sleep(LAST_OUTPUT_S)
    over.set(None)


class _Idle:
    """Cuts both streams when no byte has passed for `seconds`."""

    def __init__(self, loop: Any, seconds: float, *streams: Stream) -> None:
        self._loop, self._seconds, self._streams = loop, seconds, streams
        self._last = time.monotonic()
        self._timer = loop.call_later(seconds, self._check_idle) if seconds > 0 else None

    def touch(self) -> None:
        """Note that bytes passed."""
        self._last = time.monotonic()

    def _check_idle(self) -> None:
        left = self._last + self._seconds - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_idle)
            return
        for stream in self._streams:
            stream.abort()

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
