"""An actor that uses each feature of the base class, and misbehaves on request."""

import threading
from collections.abc import Coroutine
from typing import Any

from actors._base import Actor, gather, handles
from proto.common.until import Until
from proto.wire.errors import ActorError, Refused
from tests.base import toy_messages as m


class Toy(Actor):
    name = "toy"
    asks = frozenset({"peer"})

    async def rebuild(self) -> None:
        self.values: list[int] = []
        self.started_peers: list[str] = []
        self.errors: list[str] = []
        self.ticks = 0
        await self.sleep(0.01)

    def on_ready(self) -> None:
        self.every(Until(0.01), self.tick, "tick")

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 2:
            raise RuntimeError("the second tick fails and the loop goes on")

    def on_peer_started(self, name: str, incarnation: int) -> None:
        self.started_peers.append(f"{name}#{incarnation}")

    def seen(self) -> m.Seen:
        return m.Seen(values=tuple(self.values), peers=tuple(self.started_peers), errors=tuple(self.errors))

    def describe(self) -> dict[str, Any]:
        return {"ticks": self.ticks}

    @handles(m.Remember)
    def remember(self, message: m.Remember) -> None:
        self.values.append(message.value)

    @handles(m.Recall)
    def recall(self, _: m.Recall) -> m.Seen:
        return self.seen()

    @handles(m.SlowRecall)
    async def slow_recall(self, message: m.SlowRecall) -> m.Seen:
        await gather(self.sleep(message.delay_s), self.blocking(5, len, "x"), self.spawn(self.nap(message.delay_s)))
        return self.seen()

    async def nap(self, delay_s: float) -> None:
        await self.sleep(delay_s)

    @handles(m.AskPeer)
    async def ask_peer(self, message: m.AskPeer) -> m.Seen:
        try:
            return await self.peer("peer").ask(m.Recall(), message.timeout_s)
        except ActorError as error:
            return m.Seen(values=(), errors=(f"{type(error).__name__}: {error}",))

    @handles(m.Refuse)
    def refuse(self, _: m.Refuse) -> m.Seen:
        raise Refused("NotToday", "cannot remember: it is Friday", retry=False)

    @handles(m.Crash)
    def crash_somewhere(self, message: m.Crash) -> Coroutine[Any, None, m.Seen] | m.Seen:
        if message.where == "handler":
            raise KeyError("toy")
        if message.where == "thread":
            threading.Thread(target={}.__getitem__, args=("toy",)).start()
            return self.slow_recall(m.SlowRecall(delay_s=60))
        return self.crash_later()

    async def crash_later(self) -> m.Seen:
        await self.sleep(0.01)
        raise KeyError("toy")

    @handles(m.Hang)
    def hang(self, _: m.Hang) -> None:
        threading.Event().wait(60)


ACTOR = Toy
