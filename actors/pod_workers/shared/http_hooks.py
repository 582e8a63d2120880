"""Sends the HTTP requests of lifecycle hooks of all pods, in the thread of the pod_workers actor.

A pod worker awaits the answer in its own mailbox, so a server that never answers delays no other pod.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence

from actors._base import Actor, Future
from actors._base.messaging.mailbox import TimerHandle
from actors._net.names import Names
from actors._net.probing.network import HttpHook
from actors._net.probing.outcome import Outcome
from actors._net.probing.poller import Poller
from actors._net.probing.target import Url, is_address
from proto.v1 import HTTPHeader
from proto.wire.errors import AskTimeout

LOOKUP_S = 30.0
BUSY_S = 0.5
"""Between two tries while other hooks take all lookups."""


class _Answer(Future[Outcome]):
    """Cancelling it abandons the request."""

    __slots__ = ("give_up",)
    give_up: Callable[[], None]

    def cancel(self) -> None:
        self.give_up()


class HttpHooks:
    """`get` may be called from any thread."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._poller: Poller | None = None
        self._names = Names()

    def get(self, url: Url, headers: Sequence[HTTPHeader], timeout_s: float) -> Future[Outcome]:
        """Send one request. Without an answer the outcome is `failure` with Go's message. The host may be a name."""
        answer = _Answer()

        def begin() -> None:
            task = self._actor.spawn(self._get(url, headers, timeout_s, answer), "http hook")
            answer.give_up = lambda: self._actor.post(task.cancel)

        answer.give_up = lambda: None
        self._actor.post(begin, name="http hook")
        return answer

    async def _get(self, url: Url, headers: Sequence[HTTPHeader], timeout_s: float, answer: _Answer) -> None:
        host = "127.0.0.1" if url.host == "localhost" else url.host
        addresses: tuple[str, ...] = (host,)
        if not is_address(host):
            try:
                addresses = await self._addresses(host)
            except OSError as error:
                answer.set(Outcome("failure", f'Get "{url}": dial tcp: lookup {host}: {error.strerror or error}'))
                return
            except AskTimeout:
                answer.set(Outcome("failure", f'Get "{url}": dial tcp: lookup {host}: i/o timeout'))
                return
        if self._poller is None:
            self._poller = Poller(self._actor.bus, self._actor.post)
        ended: Future[Outcome] = Future()
        request = HttpHook(self._poller, addresses, url, headers, ended.set)
        timer: TimerHandle = self._actor.after(timeout_s, request.expire)
        try:
            request.start()
            answer.set(await ended)
        finally:
            timer.cancel()
            request.cancel()

    async def _addresses(self, host: str) -> tuple[str, ...]:
        """Raises OSError, AskTimeout."""
        deadline = time.monotonic() + LOOKUP_S
        while True:
            found = self._names.addresses(host)
            late = self._actor.after(deadline - time.monotonic(), found.set_error, AskTimeout("i/o timeout"))
            try:
                return await found
            except OSError as error:
                # EAGAIN is this process's limit: other hooks' lookups end.
                if error.errno != errno.EAGAIN or time.monotonic() + BUSY_S > deadline:
                    raise
            finally:
                late.cancel()
            await self._actor.sleep(BUSY_S)
