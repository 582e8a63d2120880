"""Asks the API server for TokenReviews and SubjectAccessReviews, and caches the answers.

https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/. Equal concurrent questions are asked once.
The API client is made with the first question, because it takes 9 MB that a node without webhooks saves.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from actors._base.messaging.tasks import Task, first_of
from actors._net.loop import Loop
from actors.server.base.http import User
from actors.server.policy import Cache
from proto.common.backoff import Backoff

MAX_ANSWERS = 4096
"""Cached answers of each kind."""
RETRIES = 4
RETRY = Backoff(initial_s=0.5, factor=1.5)
"""The delays between tries, as in client-go's webhook."""
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Client(Protocol):
    """The one call of KubeClient that reviews need."""

    async def create(self, path: str, obj: Any) -> dict[str, Any]:
        """POST; the object as the server has it. Raises ApiError."""


class ReviewError(Exception):
    """The API server did not answer the review."""


class Reviews:
    """TokenReviews and SubjectAccessReviews with a cache each. For the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        client: Callable[[], Client],
        node_name: str,
        token_s: float,
        allowed_s: float,
        denied_s: float,
    ) -> None:
        """Seconds for which a token's user, an allowed and a denied access are cached."""
        self._loop, self._make, self._node_name = loop, client, node_name
        self._client: Client | None = None
        self._token_s, self._allowed_s, self._denied_s = token_s, allowed_s, denied_s
        self._users: Cache[tuple[User | None]] = Cache(MAX_ANSWERS)
        self._verdicts: Cache[bool] = Cache(MAX_ANSWERS)
        self._asking: dict[Any, Task[Any]] = {}
        self.asked = 0

    async def user_of_token(self, token: str) -> User | None:
        """The user that the token authenticates; None for an invalid token. Raises ReviewError."""
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.get(key, time.monotonic())
        if known is None:
            known = await self._once(key, lambda: self._review_token(key, token))
        return known[0]

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
            verdict = await self._once(key, lambda: self._review_access(key, spec))
        return bool(verdict)

    async def _review_token(self, key: bytes, token: str) -> tuple[User | None]:
        answer = await self._create(
            TOKEN_REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        )
        status = answer.get("status") or {}
        found = (_user(status.get("user") or {}) if status.get("authenticated") else None,)
        self._users.put(key, found, time.monotonic(), self._token_s)
        return found

    async def _review_access(self, key: Any, spec: dict[str, Any]) -> bool:
        answer = await self._create(
            ACCESS_REVIEWS, {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        )
        status = answer.get("status") or {}
        verdict = bool(status.get("allowed")) and not status.get("denied")
        self._verdicts.put(key, verdict, time.monotonic(), self._allowed_s if verdict else self._denied_s)
        return verdict

    async def _create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        if self._client is None:
            self._client = self._make()
        from actors._kube.errors import ApiError, ServerTrouble, TooManyRequests, Unreachable  # noqa: PLC0415

        failures = 0
        while True:
            self.asked += 1
            try:
                return await self._client.create(path, obj)
            except ApiError as error:
                failures += 1
                if failures > RETRIES or not isinstance(error, Unreachable | ServerTrouble | TooManyRequests):
                    raise ReviewError(str(error)) from error
            await self._loop.sleep(RETRY.delay_s(failures))

    async def _once(self, key: Any, ask: Callable[[], Coroutine[Any, None, Any]]) -> Any:
        """The shared task of an equal question. A client that disconnects does not cancel it for the others."""
        task = self._asking.get(key)
        if task is None:
            task = self._loop.spawn(ask(), "review")
            if not task.done():
                self._asking[key] = task
                task.add_done_callback(lambda _: self._forget(key))
        await first_of(task)  # a plain await would cancel the task with this request
        return task.result(0)

    def _forget(self, key: Any) -> None:
        self._asking.pop(key, None)


def _user(found: Mapping[str, Any]) -> User:
    extra = {name: tuple(values) for name, values in (found.get("extra") or {}).items()}
    return User(found.get("username") or "", tuple(found.get("groups") or ()), found.get("uid") or "", extra)
