"""Requests service account tokens from the API server: one call for all concurrent requests of a token."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable

import msgspec

from actors._base import Actor, Task
from actors._kube.client import KubeClient
from actors._kube.errors import ApiError
from actors.objects import tokens
from actors.objects.api.retry_forbidden import retry_forbidden
from proto.pods.objects import GetToken, Token
from proto.wire.errors import Refused

log = logging.getLogger(__name__)

ISSUE_S = 6.0
TRY_AGAIN_S = 30.0
"""Pause after a failed renewal, while the old token is used."""


class Issuer:
    """Issues and caches tokens. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor, client: KubeClient) -> None:
        self._actor, self._client = actor, client
        self._cache = tokens.TokenCache()
        self._under_way: dict[GetToken, Task[Token]] = {}

    def __len__(self) -> int:
        return len(self._cache)

    async def token(self, request: GetToken) -> Token:
        """A valid token. Raises Refused TokenFailed."""
        known = self._cache.fresh(request, time.time())
        if known is not None:
            return known
        try:
            task = self._under_way.get(request)
            if task is None:
                task = self._actor.spawn(self._issue(request), "issue token")
                if not task.done():
                    self._under_way[request] = task
            return await task
        except (ApiError, ValueError) as error:
            now = time.time()
            usable = self._cache.usable(request, now)
            if usable is None:
                raise Refused("TokenFailed", f"failed to fetch token: {error}") from None
            log.warning("cannot renew the token of %s/%s for pod %s: %s; the old one is used on",
                        request.namespace, request.service_account, request.pod_name, error)  # fmt: skip
            return msgspec.structs.replace(usable, refresh=min(usable.expires, now + TRY_AGAIN_S))

    async def _issue(self, request: GetToken) -> Token:
        path, body = tokens.path(request), tokens.body(request)
        try:
            answer = await retry_forbidden(
                self._actor, lambda: self._client.request("POST", path, obj=body, timeout_s=ISSUE_S)
            )  # fmt: skip
            token = tokens.issued(answer, random.random(), time.time())
        finally:
            self._under_way.pop(request, None)
        self._cache.keep(request, token, time.time())
        return token

    def forget(self, uids: Iterable[str]) -> None:
        """Drop the tokens of removed pods."""
        self._cache.forget(frozenset(uids))
