"""Deletes the ResourceSlices of DRA drivers that are away, so that no pod is scheduled for their devices.

When the kubelet starts, it deletes all slices of the node. Here drivers first have time to register, since this
process may restart while they serve. Source: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from actors._base import Actor
from actors._objects.peer import objects_of
from proto.common.backoff import Backoff
from proto.common.until import Until
from proto.pods.objects import DeleteResourceSlices
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

GRACE_S = 30.0
"""Time for a driver to come back, the kubelet's."""
LOOK_S = 5.0
DELETE_S = 15.0
RETRY = Backoff(LOOK_S, cap_s=300.0)
ALL = ""
"""Stands for all drivers that are not usable after this process has started."""


class Absences:
    """State: the drivers whose slices are to be deleted, and when. Pure."""

    def __init__(self, now: float) -> None:
        self._registered: frozenset[str] = frozenset()
        self._usable: frozenset[str] = frozenset()
        self._due = {ALL: now + GRACE_S}
        self._failures: dict[str, int] = {}

    def look(self, registered: Collection[str], usable: Collection[str], now: float) -> None:
        """Note the drivers that are registered, and those of them that can serve now.

        A driver that cannot serve has its grace time from the change: it registers, deregisters or loses its plugin.
        """
        for driver in usable:
            self._forget(driver)
        changed = self._registered.symmetric_difference(registered) | self._usable
        for driver in changed.difference(usable):
            self._due.setdefault(driver, now + GRACE_S)
        self._registered, self._usable = frozenset(registered), frozenset(usable)

    def registers(self, driver: str, now: float) -> None:
        """A plugin of the driver registers, and its connection takes a moment: the grace time begins anew.

        It also begins for a driver that no look has seen: it may be gone before the next one.
        """
        self._due[driver] = now + GRACE_S
        self._failures.pop(driver, None)

    def due(self, now: float) -> list[DeleteResourceSlices]:
        """The deletions for now. Drivers within their own grace time keep their slices."""
        kept = tuple(sorted((self._usable | self._due.keys()) - {ALL}))
        return [
            DeleteResourceSlices(driver=driver, kept=() if driver else kept)
            for driver, at in sorted(self._due.items())
            if at <= now
        ]

    def deleted(self, driver: str) -> None:
        """The slices are gone."""
        if driver not in self._usable:
            self._forget(driver)

    def failed(self, driver: str, now: float) -> None:
        """They could not be deleted: try later, unless the driver is back."""
        if driver in self._due:
            self._failures[driver] = self._failures.get(driver, 0) + 1
            self._due[driver] = now + RETRY.delay_s(self._failures[driver])

    def describe(self, now: float) -> dict[str, float]:
        """Seconds until the deletion, by driver."""
        return {driver or "(others)": round(at - now, 1) for driver, at in sorted(self._due.items())}

    def _forget(self, driver: str) -> None:
        self._due.pop(driver, None)
        self._failures.pop(driver, None)


class SliceCleaner:
    """Looks for drivers that are away. Runs in the actor's mailbox thread."""

    def __init__(
        self, actor: Actor, registered: Callable[[], Collection[str]], usable: Callable[[], Collection[str]]
    ) -> None:
        """`registered`: all drivers. `usable`: the drivers that can serve now."""
        self._actor, self._registered, self._usable = actor, registered, usable
        self._absences = Absences(time.monotonic())

    def start(self) -> None:
        """Look, periodically. Without an API server there are no slices."""
        if self._actor.settings.kubeconfig:
            self._actor.every(Until(LOOK_S), self._look, "drivers that are away")

    def describe(self) -> dict[str, Any]:
        """The deletions to come, for a console."""
        return self._absences.describe(time.monotonic()) if self._actor.settings.kubeconfig else {}

    def registers(self, driver: str) -> None:
        """A plugin of the driver registers. Without an API server nothing is deleted, so nothing is noted."""
        if self._actor.settings.kubeconfig:
            self._absences.registers(driver, time.monotonic())

    async def _look(self) -> None:
        self._absences.look(self._registered(), self._usable(), time.monotonic())
        for request in self._absences.due(time.monotonic()):
            await self._delete(request)

    async def _delete(self, request: DeleteResourceSlices) -> None:
        who = f"DRA driver {request.driver}" if request.driver else "DRA drivers that have not registered"
        try:
            await objects_of(self._actor).ask(request, DELETE_S)
        except ActorError as error:
            log.warning("cannot delete the ResourceSlices of %s: %s; trying again", who, error)
            self._absences.failed(request.driver, time.monotonic())
        else:
            log.info("the ResourceSlices of %s, away for %.0f s, are deleted", who, GRACE_S)
            self._absences.deleted(request.driver)
