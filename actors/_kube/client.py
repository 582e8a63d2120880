"""Calls of the API from an actor: awaited, throttled, with a deadline. Nothing here blocks a mailbox.

One client per purpose, each with its own limits, threads and connections, as the kubelet has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from actors._base.futures import Future
from actors._base.mailbox import MailboxActor
from actors._kube.errors import Unreachable
from actors._kube.kubeconfig import load
from actors._kube.session import Session
from actors._kube.throttle import TokenBucket

CALL_S = 30.0
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class KubeClient:
    """One purpose's way to the API server. Objects are plain mappings, as in JSON.

    Every call raises ApiError. A call that is cancelled, or past its deadline, may still take effect.
    """

    def __init__(
        self, actor: MailboxActor, session: Session, *, qps: float = 0, burst: int = 0, timeout_s: float = CALL_S,
        threads: int = 2,
    ) -> None:  # fmt: skip
        """`qps` and `burst`: kubeAPIQPS and kubeAPIBurst; 0 for no limit. At most `threads` calls are under way."""
        self.session = session
        self._actor = actor
        self._bucket = TokenBucket(qps, burst, time.monotonic())
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="api")

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """An object, or a list."""
        return await self.request("GET", path, query=query)

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        """POST to a collection; the object as stored."""
        return await self.request("POST", path, obj=obj)

    async def update(self, path: str, obj: Any) -> dict[str, Any]:
        """PUT: replaces; with a resourceVersion, only what has not changed since."""
        return await self.request("PUT", path, obj=obj)

    async def patch(self, path: str, patch: Any, content_type: str = STRATEGIC_MERGE) -> dict[str, Any]:
        """PATCH; the object afterwards."""
        return await self.request("PATCH", path, obj=patch, content_type=content_type)

    async def delete(self, path: str, options: Any = None) -> dict[str, Any]:
        """DELETE with DeleteOptions."""
        return await self.request("DELETE", path, obj=options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        obj: Any = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """One call; waits its turn first. The deadline counts from when it has it."""
        delay_s = self._bucket.take(time.monotonic())
        if delay_s > 0:
            await self._actor.sleep(delay_s)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        body = None if obj is None else msgspec.json.encode(obj)
        content = await self._start(method, path, query, body, content_type, limit_s)
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer

    def _start(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, limit_s: float
    ) -> Future[bytes]:
        future: Future[bytes] = Future()

        def work() -> None:
            if future.done():
                return  # it waited for a thread until past its deadline
            try:
                future.set(
                    self.session.call(method, path, query=query, body=body, content_type=kind, timeout_s=limit_s)
                )
            except BaseException as error:
                future.set_error(error)

        def overdue() -> None:
            future.set_error(Unreachable(f"{method} {path}: no answer within {limit_s:g} s"))

        timer = self._actor.timers.call_later(limit_s, overdue)
        future.add_done_callback(lambda _: timer.cancel())
        self._pool.submit(work)
        return future

    def close(self) -> None:
        """Start no call any more, and close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.session.rebuild()


def connect(actor: MailboxActor, kubeconfig: str, *, qps: float = 0, burst: int = 0, **options: Any) -> KubeClient:
    """A client by a kubeconfig file. Reads it. Raises KubeconfigError."""
    return KubeClient(actor, Session(load(kubeconfig)), qps=qps, burst=burst, **options)
