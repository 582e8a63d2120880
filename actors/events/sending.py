"""Sends changed events of the store to the API server, oldest change first, one at a time.

It is level-triggered: while the server is unreachable, changes gather in the bounded store. Each event is then sent
once, in its current state. client-go gives up an event after twelve tries of ten seconds for any reason. Here twelve
error answers end the tries, and an unreachable server is waited for without a limit.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from actors._base import Actor
from actors._kube.client import connect_node
from actors._kube.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    ServerTrouble,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from actors.events.entry import KUBELET, Entry, to_api
from actors.events.store import Store
from proto.common.backoff import Backoff

log = logging.getLogger(__name__)

CALL_S = 20.0
TRIES = 12
RETRY = Backoff(1.0, cap_s=10.0)
"""client-go waits ten seconds each time, and a random part of that the first time."""


class Sender:
    """State: `sent`, the revision of the store up to which the server has all events."""

    def __init__(self, actor: Actor, store: Store, sent: int, keep: Callable[[int], None]) -> None:
        """`keep` is called with each new value of `sent`, to save it."""
        settings = actor.settings
        self._actor, self._store, self._keep = actor, store, keep
        self._host = settings.node_name
        self._client = connect_node(
            actor, settings, qps=settings.event_record_qps, burst=settings.event_burst, timeout_s=CALL_S,
            threads=1,
        )  # fmt: skip
        self.sent = sent
        self._running = False
        self._count: Counter[str] = Counter()
        self._problem = ""

    def describe(self) -> dict[str, Any]:
        """Return counts of waiting, sent and refused events, and the current problem."""
        waiting = sum(1 for entry in self._store.since(self.sent) if entry.component == KUBELET)
        return {"waiting": waiting, **self._count, "problem": self._problem}

    def wake(self) -> None:
        """Start sending unless it runs already."""
        if not self._running:
            self._running = True
            self._actor.spawn(self._send_all(), "send")

    async def _send_all(self) -> None:
        while (entry := self._store.next_to_send(self.sent)) is not None:
            await self._send(entry)
            self._problem = ""
            self.sent = max(self.sent, entry.revision)
            self._keep(self.sent)
        self._running = False

    async def _send(self, entry: Entry) -> None:
        """Try until the server accepts or refuses the event."""
        failures = server_failures = 0
        while True:
            try:
                await self._write(entry)
            except AlreadyExists:
                return  # it was sent before a kill
            except (Unreachable, Unauthorized, ServerTrouble, TooManyRequests) as error:
                failures += 1
                server_failures += isinstance(error, ServerTrouble | TooManyRequests)
                if server_failures >= TRIES:
                    self._give_up(entry, error)
                    return
                self._say(f"cannot send events to the API server: {error}", again=True)
                await self._actor.sleep(RETRY.delay_s(failures) * (1 - random.random() / 2))
                entry = self._store.entries.get(entry.name, entry)  # its current state
            except ApiError as error:
                self._give_up(entry, error)
                return
            else:
                self._count["sent"] += 1
                return

    async def _write(self, entry: Entry) -> None:
        event = as_created(entry, self._host)
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        if entry.count > 1:
            change = {name: event[name] for name in ("count", "lastTimestamp", "message")}
            try:
                await self._client.patch(f"{path}/{entry.name}", change)
            except NotFound:
                # It expired, or the server's storage is new.
                log.debug("creating event %s again: the server does not have it", entry.name)
            else:
                return
        await self._client.create(path, event)

    def _give_up(self, entry: Entry, error: ApiError) -> None:
        self._count["refused"] += 1
        self._say(f"cannot send event {entry.reason} of {entry.involved.name}: {error}", again=False)

    def _say(self, text: str, *, again: bool) -> None:
        if text != self._problem:
            log.warning("%s%s", text, "; retrying" if again else "; dropped")
        self._problem = text


def as_created(entry: Entry, host: str) -> dict[str, Any]:
    """Return the Event as a client creates it, without the fields that the server sets."""
    event: dict[str, Any] = msgspec.to_builtins(to_api(entry, host))
    meta = event["metadata"]
    return event | {"metadata": {key: meta[key] for key in ("name", "namespace", "annotations") if key in meta}}
