"""The narrow part of the server that code outside the handlers needs: the loop, settings, peers and blocking calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from actors._base.messaging.futures import Future
from actors._base.messaging.tasks import Task
from actors._base.messaging.timers import Timer
from actors._net.loop import Loop
from proto.agent.settings import Settings
from proto.wire.errors import ActorDead
from proto.wire.message import Message
from proto.wire.message import Request as Ask

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class Peers:
    """Calls of other actors and of the thread pool, for code in the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        ask: Callable[[str, Ask[Any], float], Future[Any]],
        blocking: Callable[..., Future[Any]],
    ) -> None:
        self.loop = loop
        self.settings = settings
        self._ask = ask
        self._blocking = blocking

    def ask(self, actor: str, request: Ask[R], timeout_s: float = 5.0) -> Future[R]:
        """A peer's answer. Fails as `RemoteRef.ask` does."""
        return self._ask(actor, request, timeout_s)

    def ask_next(self, actor: str, request: Ask[R], timeout_s: float = 5.0) -> Future[R]:
        """A peer's answer, asked for once more of the next incarnation when the present one ends before it answers.

        For requests that may be repeated. A peer that is killed, or stopped and replaced, delays the client only.
        """
        deadline = time.monotonic() + timeout_s
        result: Future[R] = Future()

        def on_first(first: Future[R]) -> None:
            try:
                result.set(first.result(0))
            except ActorDead:
                left_s = max(0.0, deadline - time.monotonic())
                self._ask(actor, request, left_s).add_done_callback(lambda again: _copy(again, result))
            except Exception as error:
                result.set_error(error)

        self._ask(actor, request, timeout_s).add_done_callback(on_first)
        return result

    def blocking(self, timeout_s: float, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a function that may block in a thread of a bounded pool. Fails with AskTimeout after `timeout_s`."""
        return self._blocking(timeout_s, function, *args)

    def after(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Run the function in the loop's thread in `delay_s` seconds."""
        return self.loop.call_later(delay_s, function)

    def spawn(self, coroutine: Coroutine[Any, None, T], name: str) -> Task[T]:
        """Start a coroutine now; it runs to its first await before this returns."""
        return self.loop.spawn(coroutine, name)


def _copy(source: Future[T], target: Future[T]) -> None:
    try:
        target.set(source.result(0))
    except Exception as error:
        target.set_error(error)
