"""Renews the node's Lease in kube-node-lease, in a loop that waits for no other call.

Source: client-go's util/nodelease (pkg kubelet/nodelease), https://kubernetes.io/docs/concepts/architecture/leases/.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from actors._base import Actor
from actors._kube.client import KubeClient
from actors._kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from actors._kube.shapes import Meta
from actors.node import policy
from actors.node.policy import Object
from proto.common import rfc3339

log = logging.getLogger(__name__)

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
FRACTION, JITTER = 0.25, 0.04
"""Renewal interval as a part of the Lease's duration, and its jitter."""
TRIES_AT_ONCE = 5


class _Spec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _Stored(msgspec.Struct):
    """The fields of a Lease that are read."""

    metadata: Meta
    spec: _Spec | None = None


class Lease:
    """State: the Lease as the server has it, and the time of the last renewal."""

    def __init__(
        self, actor: Actor, client: KubeClient, uid: Callable[[], str], rebuild: Callable[[], None],
        *, may_create: Callable[[], Awaitable[bool]],
    ) -> None:  # fmt: skip
        """`uid` returns the Node's UID, empty while unknown; `rebuild` replaces the connections.

        `may_create` may read the Node, and raises ApiError then.
        """
        self._actor, self._client, self._uid, self._rebuild = actor, client, uid, rebuild
        self._may_create = may_create
        self._name = actor.settings.node_name
        self._duration_s = actor.settings.node_lease_duration_s
        self._known: Object | None = None
        self.found: Object | None = None
        """The Lease as this actor first saw it."""
        self._renewed = 0.0
        self._failures = 0
        self._problem = ""

    def describe(self) -> dict[str, Any]:
        """State for the console: seconds since the last renewal, and the error since."""
        age_s = round(time.monotonic() - self._renewed, 1) if self._renewed else None
        return {"lease_age_s": age_s, "lease_error": self._problem}

    async def renew_loop(self) -> None:
        """Renew for ever; after a failure sooner than usual, so that a gap ends soon after its cause."""
        period_s = self._duration_s * FRACTION
        while True:
            if await self._renew():
                await self._actor.sleep(period_s * (1 + JITTER * random.random()))
            else:
                await self._actor.sleep(min(period_s, policy.RETRY.delay_s(self._failures)))

    async def _renew(self) -> bool:
        try:
            await self._write_over_conflicts()
        except ApiError as error:
            self._known = None  # read it again
            self._failures += 1
            self._log_error(error)
            if self._failures > 1 and not isinstance(error, NotFound):
                self._rebuild()
            return False
        if self._failures:
            log.info("can renew the Lease again")
        self._problem, self._failures, self._renewed = "", 0, time.monotonic()
        return True

    def _log_error(self, error: ApiError) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._problem:
            log.warning("cannot renew the Lease of %s: %s; trying again", self._name, text)
        self._problem = text

    async def _write_over_conflicts(self) -> None:
        for _ in range(TRIES_AT_ONCE - 1):
            try:
                return await self._write()
            except (Conflict, NotFound, AlreadyExists) as error:
                if isinstance(error, NotFound) and self._known is None:
                    raise  # the namespace is missing
                self._known = None
        return await self._write()

    async def _write(self) -> None:
        path = f"{PATH}/{self._name}"
        existing = self._known
        if existing is None:
            try:
                existing = await self._client.get(path, shape=_Stored)
            except NotFound:
                if not await self._may_create():
                    raise
                existing = None
            self.found = self.found or existing
        now = rfc3339.micros(datetime.now(UTC))
        wanted = policy.lease(self._name, self._uid(), round(self._duration_s), now, existing)
        if existing is None:
            self._known = await self._client.create(PATH, wanted, shape=_Stored)
        else:
            self._known = await self._client.update(path, wanted, shape=_Stored)
