"""List and watch for an actor: all objects of a collection first, then their changes, until `stop`.

Level-triggered: `replaced` gets all objects, and again after each loss of the resource version (410), so that no change
is missed. The listener runs in the actor's mailbox thread; there is no thread for each collection. Lists and the start
of a watch use the client's threads and limits. The process's I/O loop reads the events (`stream`).
"""

from __future__ import annotations

import random
import time

from actors._base import Actor, Future, Task
from actors._kube.client import KubeClient
from actors._kube.connection.stream import Streams
from actors._kube.errors import ApiError, Unreachable
from actors._kube.reflector import LIST_S, MARGIN_S, SHORT_S, SILENT_S, WATCH_MAX_S, WATCH_MIN_S, Listener, Position


class Follower:
    """Follows one collection. The listener is called in the mailbox thread."""

    def __init__(
        self, actor: Actor, client: KubeClient, streams: Streams, position: Position, listener: Listener
    ) -> None:
        self._actor, self._client, self._streams = actor, client, streams
        self._position = position
        self._listener = listener
        self._task: Task[None] | None = None
        self._over: Future[None] | None = None
        self._seen = 0
        self._heard = 0.0
        self._stopped = False

    def start(self) -> None:
        """Start. Call it once."""
        self._task = self._actor.spawn(self._run(), f"follow {self._position.path}")

    def stop(self) -> None:
        """Stop. The listener is not called again. The listener may call this."""
        self._stopped, self._over = True, None
        if self._task is not None:
            self._actor.post(self._task.cancel, name="stop following")

    async def _run(self) -> None:
        position = self._position
        while not self._stopped:
            try:
                if position.version is None:
                    await self._list()
                if not self._stopped:
                    await self._follow()
            except ApiError as error:
                position.lost(error)
                self._listener.failed(error)
                await self._actor.sleep(position.pause_s(error, time.monotonic(), random.random()))

    async def _list(self) -> None:
        position = self._position
        content = await self._client.content(position.path, position.list_query(), LIST_S)
        self._listener.replaced(position.listed(content))

    async def _follow(self) -> None:
        """One watch, from the present version to its end. Raises ApiError when it cannot start, or fails."""
        seconds = random.uniform(WATCH_MIN_S, WATCH_MAX_S)
        position, began = self._position, time.monotonic()
        stream = await self._client.stream(position.path, position.watch_query(seconds), LIST_S)
        over: Future[None] = Future()
        self._over, self._seen, self._heard = over, 0, began

        def arrived(lines: list[bytes], ended: bool) -> None:
            self._actor.post(self._take, over, lines, ended, name="watch events")

        def check_silence() -> None:
            now = time.monotonic()
            if over.done():
                return
            if now - began >= seconds + MARGIN_S:
                over.set_error(Unreachable(f"watch {position.path}: the server did not end it after its timeout"))
            elif now - self._heard >= SILENT_S:
                position.relist()
                over.set(None)
            else:
                due = min(began + seconds + MARGIN_S, self._heard + SILENT_S)
                self._actor.timers.call_later(max(0.0, due - now) + 0.001, check_silence)

        check_silence()
        try:
            self._streams.add(stream, arrived)
            await over
        finally:
            over.set(None)
            self._streams.remove(stream)
        if not self._seen and time.monotonic() - began < SHORT_S:
            raise Unreachable(f"watch {position.path}: it ended at once, without an event")

    def _take(self, over: Future[None], lines: list[bytes], ended: bool) -> None:
        self._heard = time.monotonic()
        try:
            for line in lines:
                if over is not self._over or over.done():
                    return  # stopped meanwhile, perhaps by the listener
                event = self._position.event(line)
                self._seen += 1
                if event.type == "BOOKMARK":
                    self._listener.marked(event.object["metadata"]["resourceVersion"])
                else:
                    self._listener.changed(event.type, event.object)
        except ApiError as error:
            over.set_error(error)
        if ended:
            over.set(None)
