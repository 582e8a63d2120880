"""Calls of the API server from an actor, to await: throttled, with a deadline, without blocking the mailbox.

Each purpose has its own client with its own limits, threads and connections, as in the kubelet.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from actors._base.messaging import tracing
from actors._base.messaging.futures import Future
from actors._base.messaging.mailbox import MailboxActor
from actors._base.process.thread_pool import ThreadPool
from actors._host.files.paths import current_certificate
from actors._kube.connection.call_waits import CallWaits
from actors._kube.connection.counters import throttled
from actors._kube.connection.plugin import lateness
from actors._kube.connection.session import Session
from actors._kube.connection.stream import Stream
from actors._kube.errors import ServerTrouble, Throttled, TooManyRequests, Unreachable
from actors._kube.shapes import Answer, Stored
from proto.agent.settings import Settings
from proto.common import untrusted
from proto.common.token_bucket import TokenBucket

T = TypeVar("T")
CALL_S = 30.0
MAX_TRIES = 10
LONGEST_WAIT_S = 60.0
"""After a longer Retry-After the error goes to the caller, which knows what can wait."""
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class KubeClient:
    """The API client of one purpose. Objects are plain mappings, as in JSON.

    Every call raises ApiError. A call that is cancelled, or past its deadline, may still take effect. Answers 429 and
    5xx with Retry-After are retried after that time, up to ten times, as in client-go. `shape` is a struct of the
    fields that the caller reads (see `shapes`); an answer of another shape counts as Unreachable.
    """

    def __init__(
        self, actor: MailboxActor, session: Session, *, qps: float = 0, burst: int = 0, timeout_s: float = CALL_S,
        threads: int = 2, tries: int = MAX_TRIES, most_throttled_s: float = math.inf,
    ) -> None:  # fmt: skip
        """`qps` and `burst`: kubeAPIQPS and kubeAPIBurst; 0 for no limit. At most `threads` calls run at a time.
        `tries`: 1 for a caller that handles Retry-After itself. A call that the throttle would hold for more than
        `most_throttled_s` raises Throttled at once."""
        self.session = session
        self._waits = CallWaits(lambda: session.server)
        session.on_plugin, session.on_credentials = self._waits.plugin_runs, self._waits.has_credentials
        self._actor = actor
        self._bucket = TokenBucket(qps, max(1, burst))
        self._timeout_s = timeout_s
        self._tries, self._most_throttled_s = tries, most_throttled_s
        self._pool = ThreadPool(actor.timers, "api", threads)

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, *, shape: type[Any] = Stored
    ) -> dict[str, Any]:  # fmt: skip
        """An object, or a list."""
        return await self.request("GET", path, query=query, shape=shape)

    async def create(self, path: str, obj: Any, *, shape: type[Any] = Answer) -> dict[str, Any]:
        """POST to a collection. Returns the stored object."""
        return await self.request("POST", path, obj=obj, shape=shape)

    async def update(self, path: str, obj: Any, *, shape: type[Any] = Stored) -> dict[str, Any]:
        """PUT: replace the object; with a resourceVersion, only if it has not changed since."""
        return await self.request("PUT", path, obj=obj, shape=shape)

    async def patch(
        self, path: str, patch: Any, content_type: str = STRATEGIC_MERGE, *, shape: type[Any] = Stored
    ) -> dict[str, Any]:  # fmt: skip
        """PATCH. Returns the changed object."""
        return await self.request("PATCH", path, obj=patch, content_type=content_type, shape=shape)

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
        shape: type[Any] = Answer,
    ) -> dict[str, Any]:
        """One call, after the throttle. The deadline starts after the throttle, and again with each try."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        body = None if obj is None else msgspec.json.encode(obj)

        def call() -> bytes:
            return self.session.call(
                method, path, query=query, body=body, content_type=content_type, timeout_s=limit_s
            )  # fmt: skip

        content = await self._run(f"{method} {path}", call, limit_s)
        try:
            answer: dict[str, Any] = untrusted.decode_json(content, dict[str, Any])
            msgspec.convert(answer, shape)
        except msgspec.DecodeError as error:
            raise Unreachable(f"{method} {path}: the answer is no object of this API: {error}") from error
        return answer

    async def content(self, path: str, query: Mapping[str, str], timeout_s: float) -> bytes:
        """GET: the answer's bytes."""
        return await self._run(
            f"GET {path}", lambda: self.session.call("GET", path, query=query, timeout_s=timeout_s), timeout_s
        )

    async def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Stream:
        """GET: a streaming answer, after its head has come."""

        def begin() -> Stream:
            return self.session.stream(path, query, timeout_s)

        return await self._run(f"GET {path}", begin, timeout_s)

    async def _run(self, what: str, function: Callable[[], T], limit_s: float) -> T:
        """Run the call in a thread of the client, after the throttle, and again after Retry-After."""
        tries = 0
        while True:
            tries += 1
            now = time.monotonic()
            if (wait_s := self._bucket.wait_s(now)) > self._most_throttled_s:
                raise Throttled(f"{what}: the throttle (kubeAPIQPS) would hold it for {wait_s:.0f} s")
            delay_s = self._bucket.take(now)
            throttled(what.partition(" ")[0], self.session.server, delay_s)
            if delay_s > 0:
                await self._actor.sleep(delay_s)
            try:
                return await self._start(what, function, limit_s)
            except (TooManyRequests, ServerTrouble) as error:
                if tries >= self._tries or error.retry_after_s is None or error.retry_after_s > LONGEST_WAIT_S:
                    raise
                await self._actor.sleep(error.retry_after_s)

    def _start(self, what: str, function: Callable[[], T], limit_s: float) -> Future[T]:
        future: Future[T] = Future()
        call = self._waits.begin(what, limit_s)
        future.on_end(lambda _: self._waits.end(call))
        method, _, path = what.partition(" ")
        span = tracing.begin_request(f"HTTP {method}", {"http.request.method": method, "url.path": path})

        def work() -> None:
            if future.done():
                return  # its deadline passed while it waited for a thread
            self._waits.carried_out(call)
            tracing.CURRENT.set(span.context if span is not None else "")  # of this thread, for the request's header
            try:
                future.set(function())
            except BaseException as error:
                future.set_error(error)

        def overdue() -> None:
            future.set_error(
                Unreachable(f"{what}: {lateness(self.session.plugin_run, call.began, call.sent, limit_s)}")
            )

        timer = self._actor.timers.call_later(limit_s, overdue)
        future.add_done_callback(lambda _: timer.cancel())
        if span is not None:
            future.add_done_callback(functools.partial(tracing.end_with, span))
        self._pool.submit(work)
        return future

    def close(self) -> None:
        """Reject further calls and close the connections."""
        self._pool.close()
        self.session.close_connections()


def connect(
    actor: MailboxActor, kubeconfig: str, *, follow_authority: bool = True, qps: float = 0, burst: int = 0,
    **options: Any,
) -> KubeClient:  # fmt: skip
    """A client for a kubeconfig file, which may not exist yet. `follow_authority`: see Session."""
    session = Session(kubeconfig, follow_authority=follow_authority)
    return KubeClient(actor, session, qps=qps, burst=burst, **options)


def connect_node(
    actor: MailboxActor, settings: Settings, *, qps: float = 0, burst: int = 0, **options: Any
) -> KubeClient:  # fmt: skip
    """A client with this node's credentials: its rotated certificate, before those of its kubeconfig."""
    rotated = current_certificate(settings.cert_dir, "kubelet-client") if settings.rotate_certificates else ""
    session = Session(settings.kubeconfig, rotated, follow_authority=settings.follow_api_authority)
    return KubeClient(actor, session, qps=qps, burst=burst, **options)
