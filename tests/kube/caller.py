"""An actor outside of any process of ours, which runs what a test gives it, and a watch by such an actor."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import MailboxActor
from actors._kube.client import KubeClient
from actors._kube.connection.session import Session
from actors._kube.connection.stream import Streams
from actors._kube.follow import Follower
from actors._kube.reflector import Listener, Position
from tests.harness import wait_for


class Loop:
    """Timers and descriptors of a process, on threads of the test's."""

    def __init__(self) -> None:
        self._epoll, self._callbacks = select.epoll(), {}
        threading.Thread(target=self._run, daemon=True).start()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(delay_s, callback)
        timer.daemon = True
        timer.start()
        return timer

    def watch_fd(self, fd: int, callback: Callable[[], None]) -> None:
        self._callbacks[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def _run(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                self._callbacks[fd]()


class Caller(MailboxActor):
    """An actor that runs what a test gives it."""

    started: ClassVar[list[Caller]] = []

    def on_start(self) -> None:
        self.started.append(self)

    def run(self, coroutine: Coroutine[Any, None, Any], timeout_s: float = 20) -> Any:
        outcome: Future[Any] = Future()

        async def followed() -> None:
            try:
                outcome.set(await coroutine)
            except Exception as error:
                outcome.set_error(error)

        self.post(lambda: self.spawn(followed(), "test"), name="test")
        return outcome.result(timeout_s)


@contextlib.contextmanager
def caller(loop: Loop) -> Iterator[Caller]:
    ref = Caller.start(loop)
    yield wait_for(lambda: Caller.started and Caller.started.pop())
    ref.stop()


@contextlib.contextmanager
def following(session: Session, path: str, listener: Listener, query: dict[str, str]) -> Iterator[None]:
    """A watch of one collection. The listener is called in a thread of its own."""
    loop: Any = Loop()
    with caller(loop) as actor:
        one: Any = actor
        follower = Follower(one, KubeClient(actor, session), Streams(loop), Position(path, query), listener)
        actor.post(follower.start, name="start")
        yield
        actor.post(follower.stop, name="stop")
