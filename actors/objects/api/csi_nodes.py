"""Writes the CSINode, and the Node's annotation and labels, when drivers or the Node change.

Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from actors._base import Actor, Future
from actors._base.messaging.tasks import first_of
from actors._kube.back_off import ApiBackoff
from actors._kube.client import MERGE, KubeClient
from actors._kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from actors.objects import csi_node
from proto.pods.objects import CsiDriver, SetCsiDrivers

log = logging.getLogger(__name__)

CONFLICTS = 5
"""Consecutive conflicts before a retry with back-off."""
REFUSALS = frozenset({400, 403, 413, 422})
"""HTTP statuses of what the server does not take; a driver's name, ID or topology may be the reason."""


class _Drivers(NamedTuple):
    """Drivers to write, and the server's refusals."""

    accepted: tuple[CsiDriver, ...]
    complete: bool
    """There are no others."""
    refused: dict[str, ApiError]
    """By the driver's name. The empty name stands for removed drivers, whose ids then stay in the annotation."""

    def check(self) -> None:
        """Raise ApiError for refused drivers."""
        if self.refused:
            first = next(iter(self.refused.values()))
            each = "; ".join(
                f"CSI driver {name} is left out: {error}" if name else f"the ids of removed CSI drivers stay: {error}"
                for name, error in sorted(self.refused.items())
            )
            raise ApiError(first.status, first.reason, each, first.retry_after_s)


class CsiNodes:
    """Keeps the CSINode current. `node` returns the Node's document, None while it is not known."""

    def __init__(self, actor: Actor, client: KubeClient, node: Callable[[], dict[str, Any] | None]) -> None:
        self._actor, self._client, self._node = actor, client, node
        self._name = actor.settings.node_name
        self._drivers: tuple[CsiDriver, ...] = ()
        self._all = False
        self._written_for = ""
        """UID of the Node for which the CSINode was written."""
        self.was_written = False
        """The CSINode has been written since this actor started."""
        self._busy = self._again = False
        self._changed: Future[None] = Future()
        """Completed by other drivers, so that they do not wait for the next try."""
        self._back_off = ApiBackoff()
        self.error = ""

    @property
    def state(self) -> str:
        """State for `describe`."""
        return self.error or ("being written" if self._busy else "written" if self._written_for else "")

    def set(self, message: SetCsiDrivers) -> None:
        """Take the drivers, from volume, and write the changes."""
        if (message.drivers, message.complete) != (self._drivers, self._all):
            self._drivers, self._all, self._written_for = message.drivers, message.complete, ""
            self._changed.set(None)
        self.write_changes()

    def write_changes(self) -> None:
        """Write the CSINode and the Node when they differ from the desired state."""
        node = self._node()
        if node is None:
            return
        patch, _ = csi_node.node_patch(node, self._drivers, all_=self._all)
        if patch is None and self._written_for == node["metadata"].get("uid"):
            return
        self._again = True
        if not self._busy:
            self._actor.spawn(self._write_until_done(), "csinode")

    async def _write_until_done(self) -> None:
        self._busy = True
        while self._again:
            self._again, self._changed = False, Future()
            try:
                await self._write()
            except ApiError as error:
                if str(error) != self.error:
                    log.warning("cannot write the CSINode %s: %s; tried again", self._name, error)
                self.error, self._again = str(error), True
                pause = self._actor.sleep(self._back_off.delay(time.monotonic(), random.random(), error.retry_after_s))
                await first_of(pause, self._changed)
                pause.cancel()
            else:
                self.error = ""
        self._busy = False

    async def _write(self) -> None:
        node = self._node()
        if node is None:
            return
        uid, wanted, all_ = node["metadata"].get("uid") or "", self._drivers, self._all
        drivers = await self._patch_node(node, wanted, all_=all_)
        drivers = await self._write_accepted(uid, drivers)
        drivers.check()
        if wanted == self._drivers and all_ == self._all:
            self._written_for = uid

    async def _patch_node(self, node: dict[str, Any], drivers: tuple[CsiDriver, ...], *, all_: bool) -> _Drivers:
        """Write the drivers' ids and labels. Drivers that the server refuses are left out, as in the kubelet."""
        patch, collisions = csi_node.node_patch(node, drivers, all_=all_)
        for problem in collisions:
            log.error("%s", problem)
        try:
            await self._patch(node, patch)
            return _Drivers(drivers, all_, {})
        except ApiError as error:
            _check_refusal(error)
            log.debug("the Node %s is patched for each CSI driver: %s", self._name, error)
        accepted: tuple[CsiDriver, ...] = ()
        refused: dict[str, ApiError] = {}
        for driver in drivers:
            try:
                node = await self._patch(node, csi_node.node_patch(node, (driver,), all_=False)[0])
                accepted += (driver,)
            except ApiError as error:
                _check_refusal(error)
                refused[driver.name] = error
        try:
            await self._patch(node, csi_node.node_patch(node, accepted, all_=all_, left=refused)[0])
        except ApiError as error:
            _check_refusal(error)
            refused[""] = error
        return _Drivers(accepted, all_, refused)

    async def _patch(self, node: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
        """The Node after the patch."""
        return node if patch is None else await self._client.patch(f"/api/v1/nodes/{self._name}", patch, MERGE)

    async def _write_accepted(self, uid: str, drivers: _Drivers) -> _Drivers:
        """Write the CSINode. Drivers that the server refuses are left out, as in the kubelet.

        It is written without new drivers first, because the node becomes Ready with it. Existing entries stay: volumes
        are attached by them.
        """
        try:
            await self._write_csi_node(uid, drivers)
            self.was_written = True
            return drivers
        except ApiError as error:
            _check_refusal(error)
            log.debug("the CSINode %s is written for each CSI driver: %s", self._name, error)
        names = frozenset(one.name for one in drivers.accepted)
        taken = drivers._replace(accepted=())
        await self._write_csi_node(uid, taken, names)
        self.was_written = True
        for driver in drivers.accepted:
            more = taken._replace(accepted=(*taken.accepted, driver))
            try:
                await self._write_csi_node(uid, more, names)
                taken = more
            except ApiError as error:
                _check_refusal(error)
                taken.refused[driver.name] = error
        return taken

    async def _write_csi_node(self, uid: str, drivers: _Drivers, left: Collection[str] = ()) -> None:
        """Write the CSINode, over conflicts. Existing entries of drivers that are `left` or refused stay."""
        for attempt in range(CONFLICTS):
            try:
                await self._try_csi_node(uid, drivers, {*drivers.refused, *left})
                return
            except (Conflict, AlreadyExists):
                if attempt == CONFLICTS - 1:
                    raise

    async def _try_csi_node(self, uid: str, drivers: _Drivers, left: Collection[str]) -> None:
        path = f"{csi_node.PATH}/{self._name}"

        def wanted(existing: dict[str, Any] | None) -> dict[str, Any]:
            complete = drivers.complete
            return csi_node.wanted(self._name, uid, existing, drivers.accepted, all_=complete, left=left)

        try:
            existing = await self._client.get(path, shape=csi_node.CsiNode)
        except NotFound:
            await self._client.create(csi_node.PATH, wanted(None))
            return
        if _owner(existing) not in ("", uid):
            # It belongs to an earlier Node of that name, with other drivers.
            await self._client.delete(path)
            await self._client.create(csi_node.PATH, wanted(None))
            return
        node = wanted(existing)
        if not csi_node.same(node, existing):
            await self._client.update(path, node)


def _check_refusal(error: ApiError) -> None:
    """Raise the error unless the server would refuse the same write again."""
    if error.status not in REFUSALS:
        raise error


def _owner(existing: dict[str, Any]) -> str:
    owners = existing["metadata"].get("ownerReferences") or ()
    return next((one.get("uid") or "" for one in owners if one.get("kind") == "Node"), "")
