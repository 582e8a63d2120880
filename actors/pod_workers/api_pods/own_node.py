"""Reads our own Node object: the labels, taints and extended resources that admission checks pods against.

The objects actor fetches it. The last known values are on disk, so that a reboot without the API server admits the
same pods as before. Source: GetCachedNode of pkg/kubelet, and generalFilter of pkg/kubelet/lifecycle/predicate.go,
which reads the Node anew before it rejects a pod.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from actors._base import Actor
from actors._cgroup.quantities.allocatable import Amounts, amount
from actors._host.files import paths
from actors._host.files.checkpoint import CheckpointFile
from actors._objects.fetch import fetch
from actors._objects.peer import objects_of
from proto.agent.settings import Taint
from proto.pods.objects import ObjectRef
from proto.v1.scalars.quantity import QuantityError
from proto.v1.scalars.resource_name import is_extended
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

VERSION = 1
SAVE_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The parts of the Node object that admission uses."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    extended: Mapping[str, str] = field(default_factory=dict)
    """Quantities of extended resources in status.allocatable, of device plugins and of administrators."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> KnownNode:
        """From the object's JSON form, or from `plain`."""
        labels = (document.get("metadata") or {}).get("labels") or {}
        taints = (document.get("spec") or {}).get("taints") or ()
        allocatable = (document.get("status") or {}).get("allocatable") or {}
        extended = {name: str(amount) for name, amount in allocatable.items() if is_extended(name)}
        return cls(dict(labels), tuple(map(_taint, taints)), extended)

    def plain(self) -> dict[str, Any]:
        """For the checkpoint."""
        taints = [{"key": one.key, "effect": one.effect, "value": one.value} for one in self.taints]
        return {
            "metadata": {"labels": dict(self.labels)},
            "spec": {"taints": taints},
            "status": {"allocatable": dict(self.extended)},
        }

    def counted(self, plugins: Collection[str] | None) -> Amounts:
        """Extended resources whose requests admission adds up itself: an administrator's.

        The resources actor counts those of device plugins. `plugins`: their names; None while any may be one.
        """
        found: Amounts = {}
        if plugins is None:
            return found
        for name in self.extended.keys() - set(plugins):
            with suppress(QuantityError):  # another server's notation
                found[name] = amount(name, self.extended[name])
        return found


def _taint(one: Mapping[str, Any]) -> Taint:
    return Taint(key=one.get("key", ""), effect=one.get("effect", ""), value=one.get("value", ""))


class OwnNode:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: Actor, on_read: Callable[[KnownNode | None], None]) -> None:
        """`on_read(node)`: the server has answered; None: it has no such Node."""
        self.ref = ObjectRef(kind="Node", name=actor.settings.node_name)
        self._actor = actor
        self._on_read = on_read
        path = os.path.join(paths.checkpoints_dir(actor.settings.root_dir), "own-node.json")
        loss = "a reboot without the API server would not know it"
        self._file = CheckpointFile(actor, path, VERSION, loss, deadline_s=SAVE_DEADLINE_S)
        self._reading = False
        self._again = False

    def load(self) -> KnownNode | None:
        """The values on disk; None without a file."""
        data = self._file.load()
        known = KnownNode.of(data) if isinstance(data, dict) else None
        if known is not None:
            self._file.holds(known.plain())
        return known

    def read_soon(self) -> None:
        """Read it in the background; calls during a read cause one more read."""
        self._again = True
        if not self._reading:
            self._reading = True
            self._actor.spawn(self._read_all(), "read_node")

    async def _read_all(self) -> None:
        try:
            while self._again:
                self._again = False
                await self.read()
        finally:
            self._reading = False

    async def read(self, *, fresh: bool = False) -> None:
        """Read it; with `fresh` from the server instead of a cache.

        A failed read changes nothing: the objects actor reports when the Node can be read again.
        """
        try:
            found = await fetch(objects_of(self._actor), (self.ref,), fresh=fresh)
        except ActorError as error:
            log.debug("cannot read our own Node: %s", error)
            return
        known = KnownNode.of(found[self.ref].document) if self.ref in found else None
        self._on_read(known)
        if known is not None:
            await self._file.save_changed(known.plain())
