"""Our own Node as the API server has it: the labels and taints that admission holds pods against.

They come from the objects actor. What was known last is on disk, since after a reboot without the API server the same
pods are to be admitted as before. Source: GetCachedNode of pkg/kubelet, and generalFilter of
pkg/kubelet/lifecycle/predicate.go, which reads the Node anew before it says that a pod does not fit.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors._host.files import checkpoint, paths
from actors._objects.fetch import fetch
from actors._objects.peer import objects_of
from proto.agent.settings import Taint
from proto.pods.objects import ObjectRef
from proto.wire.errors import ActorError, AskTimeout

if TYPE_CHECKING:
    from actors.pod_workers.actor import PodWorkers

log = logging.getLogger(__name__)

VERSION = 1
SAVE_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class KnownNode:
    """Of the Node's object."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> KnownNode:
        """From the object's JSON form, or from `plain`."""
        labels = (document.get("metadata") or {}).get("labels") or {}
        taints = (document.get("spec") or {}).get("taints") or ()
        return cls(dict(labels), tuple(map(_taint, taints)))

    def plain(self) -> dict[str, Any]:
        """For the checkpoint."""
        taints = [{"key": one.key, "effect": one.effect, "value": one.value} for one in self.taints]
        return {"metadata": {"labels": dict(self.labels)}, "spec": {"taints": taints}}


def _taint(one: Mapping[str, Any]) -> Taint:
    return Taint(key=one.get("key", ""), effect=one.get("effect", ""), value=one.get("value", ""))


class OwnNode:
    """Used in the actor's mailbox thread."""

    def __init__(self, actor: PodWorkers, on_read: Callable[[KnownNode | None], None]) -> None:
        """`on_read`: the server has said what the Node is, or that there is none."""
        self.ref = ObjectRef(kind="Node", name=actor.settings.node_name)
        self._actor = actor
        self._on_read = on_read
        self._saved: KnownNode | None = None
        self._path = os.path.join(paths.checkpoints_dir(actor.settings.root_dir), "own-node.json")
        self._looking = False
        self._again = False

    def load(self) -> KnownNode | None:
        """What was known in an earlier life."""
        data = checkpoint.load(self._path, VERSION)
        self._saved = KnownNode.of(data) if isinstance(data, dict) else None
        return self._saved

    def look(self) -> None:
        """Read it in the background."""
        self._again = True
        if not self._looking:
            self._looking = True
            self._actor.spawn(self._look(), "look_at_node")

    async def _look(self) -> None:
        try:
            while self._again:
                self._again = False
                await self.read()
        finally:
            self._looking = False

    async def read(self, *, fresh: bool = False) -> None:
        """Read it, if `fresh` from the server and from no cache. Where that is not possible all stays as it is: the
        objects actor says when it is."""
        try:
            found = await fetch(objects_of(self._actor), (self.ref,), fresh=fresh)
        except ActorError as error:
            log.debug("cannot read our own Node: %s", error)
            return
        known = KnownNode.of(found[self.ref].document) if self.ref in found else None
        self._on_read(known)
        if known is not None and known != self._saved:
            await self._save(known)

    async def _save(self, known: KnownNode) -> None:
        save = functools.partial(checkpoint.save, sync=False)
        try:
            await self._actor.blocking(SAVE_DEADLINE_S, save, self._path, VERSION, known.plain())
            self._saved = known
        except (OSError, AskTimeout) as error:
            log.error("cannot write %s: %s; a reboot without the API server would not know it", self._path, error)
