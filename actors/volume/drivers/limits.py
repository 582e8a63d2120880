"""Updates of each driver's volume limit for this node while it runs (KEP-4876).

A driver is asked as often as its CSIDriver says (nodeAllocatableUpdatePeriodSeconds), and at once when an attachment
failed because there are too many volumes. The answer reaches the CSINode like a registration.
Source: pkg/volume/csi/csi_node_updater.go and VerifyExhaustedResource of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time

from actors._base import Actor
from actors._objects.fetch import fetch
from actors._objects.peer import objects_of
from actors.volume.drivers.registry import Registry
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.steps.csi import Describe
from proto.common.until import Until
from proto.pods.objects import ObjectRef, document_of
from proto.v1.cluster import CSIDriver
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""The shortest period that the API allows."""


class Limits:
    """Asks drivers for their limits when they are due. Runs in the mailbox thread."""

    def __init__(self, actor: Actor, pool: Pool, registry: Registry) -> None:
        self._actor, self._pool, self._registry = actor, pool, registry
        self._asked: dict[str, float] = {}
        """Monotonic seconds of the last question, by name, for drivers with a period."""

    def start(self) -> None:
        """Ask due drivers periodically."""
        self._actor.every(Until(LOOK_S), self._ask_due, "volume limits")

    async def _ask_due(self) -> None:
        names = self._registry.drivers().keys()
        refs = [ObjectRef(kind="CSIDriver", name=name) for name in names]
        if not refs:
            self._asked.clear()
            return
        try:
            found = await fetch(objects_of(self._actor), refs)
        except ActorError as error:
            log.debug("cannot read the update periods of CSIDrivers: %s", error)
            return
        periods = {ref.name: period_s(document_of(one, CSIDriver)) for ref, one in found.items()}
        now = time.monotonic()
        # A driver that has just registered was asked then.
        self._asked = {name: self._asked.get(name, now) for name, period in periods.items() if period}
        for name, asked in list(self._asked.items()):
            if now - asked >= periods[name]:
                await self.ask(name)

    async def ask(self, driver: str) -> None:
        """Ask the driver again. A driver that does not answer is asked again after its period."""
        info = self._registry.drivers().get(driver)
        if info is None:
            return
        self._asked[driver] = time.monotonic()
        try:
            (outcome,) = await self._pool.run(Describe(info), dedicated=True)
            problem = outcome.error
        except (HelperGone, HelperHung) as gone:
            outcome, problem = None, str(gone)
        if outcome is None or outcome.driver is None:
            log.warning("cannot ask CSI driver %s how many volumes the node takes: %s", driver, problem)
        else:
            self._registry.update(info, outcome.driver)


def period_s(driver: CSIDriver) -> int:
    """Seconds between two questions; 0 for never."""
    return driver.spec.node_allocatable_update_period_seconds or 0
