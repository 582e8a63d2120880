"""Asks the API server for TokenReviews and SubjectAccessReviews, and caches the answers.

https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/. Equal concurrent questions are asked once.
An API client is made with the first question of its kind: the first one takes 9 MB that a node without webhooks saves.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from actors._base.messaging.tasks import Task, first_of
from actors._net.loop import Loop
from actors.server.base.http import User
from actors.server.policy import Cache
from proto.common.backoff import Backoff

T = TypeVar("T")

MAX_TOKEN_BYTES = 16 * 1024
"""A longer token is invalid without a review. A service account's token has 1 to 2 KB, and the largest of
identity providers, with hundreds of groups, fit."""
MAX_TOKEN_REVIEWS = 64
"""TokenReviews that wait for an answer. Clients without any right cause them. Each of the client's 4 threads has 16 of
them then, to do within the deadline of 10 s. Their tokens take 1 MiB. The client's throttle bounds their rate."""
MAX_ANSWERS = 4096
"""Cached answers of each kind."""
MAX_ERROR_CHARS = 500
"""Of an API server's text, for a log line."""
RETRIES = 4
RETRY = Backoff(initial_s=0.5, factor=1.5)
"""The delays between tries, as in client-go's webhook."""
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Client(Protocol):
    """The one call of KubeClient that reviews need."""

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        """POST; the object as the server has it. Raises ApiError."""


class _UserInfo(msgspec.Struct):
    username: str | None = None
    uid: str | None = None
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...] | None] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool | None = None
    user: _UserInfo | None = None
    error: str | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool | None = None
    denied: bool | None = None


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


class ReviewError(Exception):
    """The API server did not answer the review, or with a field of another type."""


class UndecidedToken(ReviewError):
    """The API server could not check the token, and says why."""


class TooManyReviews(ReviewError):
    """MAX_TOKEN_REVIEWS wait already, or the throttle would hold this one for too long."""


class Reviews:
    """TokenReviews and SubjectAccessReviews with a cache and a client each. For the loop's thread.

    Any client that reaches the port can cause TokenReviews. In the same queue they would delay the others.
    """

    def __init__(
        self,
        loop: Loop,
        client: Callable[[], Client],
        node_name: str,
        token_s: float,
        allowed_s: float,
        denied_s: float,
    ) -> None:
        """`client` makes an API client. Seconds for which a token's user, an allowed and a denied access are cached."""
        self._loop, self._make, self._node_name = loop, client, node_name
        self._clients: dict[str, Client] = {}
        self._token_s, self._allowed_s, self._denied_s = token_s, allowed_s, denied_s
        self._users: Cache[User] = Cache(MAX_ANSWERS)
        self._invalid: Cache[bool] = Cache(MAX_ANSWERS)
        """Tokens that authenticate no user. Clients without rights send them, and must not displace known users."""
        self._verdicts: Cache[bool] = Cache(MAX_ANSWERS)
        self._asking: dict[str, dict[Any, Task[Any]]] = {TOKEN_REVIEWS: {}, ACCESS_REVIEWS: {}}
        self.asked = 0

    async def user_of_token(self, token: str) -> User | None:
        """The user that the token authenticates; None for an invalid token. Raises ReviewError."""
        if len(token) > MAX_TOKEN_BYTES:
            return None
        key = hashlib.sha256(token.encode()).digest()
        now = time.monotonic()
        known = self._users.get(key, now)
        if known is not None or self._invalid.get(key, now):
            return known
        waiting = self._asking[TOKEN_REVIEWS]
        if key not in waiting and len(waiting) >= MAX_TOKEN_REVIEWS:
            raise TooManyReviews(f"{len(waiting)} reviews of tokens wait for the API server")
        found: User | None = await self._once(TOKEN_REVIEWS, key, lambda: self._review_token(key, token))
        return found

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        """True when the user may do that to nodes/`subresource` of this node. Raises ReviewError."""
        spec: dict[str, Any] = {
            "user": user.name,
            "resourceAttributes": {
                "verb": verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self._node_name,
            },
        }
        spec |= {"groups": list(user.groups)} if user.groups else {}
        spec |= {"uid": user.uid} if user.uid else {}
        spec |= {"extra": {name: list(values) for name, values in user.extra.items()}} if user.extra else {}
        key = (user.name, user.uid, user.groups, tuple(sorted(user.extra.items())), verb, subresource)
        verdict = self._verdicts.get(key, time.monotonic())
        if verdict is None:
            verdict = await self._once(ACCESS_REVIEWS, key, lambda: self._review_access(key, spec))
        return bool(verdict)

    async def _review_token(self, key: bytes, token: str) -> User | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._create(TOKEN_REVIEWS, review, _TokenReview)
        status = answer.status or _TokenStatus()
        found = _user(status.user or _UserInfo()) if status.authenticated else None
        if found is None and status.error:
            # An authenticator failed. The next request may find it well again, so this answer is not cached.
            # Its text may repeat the token, which belongs in no log.
            raise UndecidedToken(status.error.replace(token, "<token>")[:MAX_ERROR_CHARS])
        if found is not None:
            self._users.put(key, found, time.monotonic(), self._token_s)
        else:
            self._invalid.put(key, True, time.monotonic(), self._token_s)
        return found

    async def _review_access(self, key: Any, spec: dict[str, Any]) -> bool:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._create(ACCESS_REVIEWS, review, _AccessReview)
        status = answer.status or _AccessStatus()
        verdict = bool(status.allowed) and not status.denied
        self._verdicts.put(key, verdict, time.monotonic(), self._allowed_s if verdict else self._denied_s)
        return verdict

    async def _create(self, path: str, obj: Mapping[str, Any], kind: type[T]) -> T:
        """The review with its status. Raises ReviewError."""
        client = self._clients.get(path)
        if client is None:
            client = self._clients[path] = self._make()
        from actors._kube.errors import ApiError, ServerTrouble, Throttled, TooManyRequests, Unreachable  # noqa: PLC0415

        failures = 0
        while True:
            self.asked += 1
            try:
                return msgspec.convert(await client.create(path, obj), kind)
            except msgspec.ValidationError as error:
                raise ReviewError(f"the API server's answer is no {obj['kind']}: {error}") from error
            except Throttled as error:
                raise TooManyReviews(str(error)) from error
            except ApiError as error:
                failures += 1
                if failures > RETRIES or not isinstance(error, Unreachable | ServerTrouble | TooManyRequests):
                    raise ReviewError(str(error)) from error
            await self._loop.sleep(RETRY.delay_s(failures))

    async def _once(self, path: str, key: Any, ask: Callable[[], Coroutine[Any, None, Any]]) -> Any:
        """The shared task of an equal question. A client that disconnects does not cancel it for the others."""
        asking = self._asking[path]
        task = asking.get(key)
        if task is None:
            task = self._loop.spawn(ask(), "review")
            if not task.done():
                asking[key] = task
                task.add_done_callback(lambda _: self._forget(path, key))
        await first_of(task)  # a plain await would cancel the task with this request
        return task.result(0)

    def _forget(self, path: str, key: Any) -> None:
        self._asking[path].pop(key, None)


def _user(found: _UserInfo) -> User:
    extra = {name: values or () for name, values in (found.extra or {}).items()}
    return User(found.username or "", found.groups or (), found.uid or "", extra)
