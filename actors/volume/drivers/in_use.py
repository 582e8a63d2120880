"""Volumes in use on this node, reported in the Node's status so that no controller detaches them.

A volume that needs an attachment is mounted only once the Node reports it as in use. It stays in the report until
nothing of it is left on disk, so a controller never detaches a mounted or staged volume. Runs in the actor's mailbox
thread. Source: volumesInUse and GenerateVerifyControllerAttachedVolumeFunc of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from actors._base import Actor, Future, first_of
from actors._host.files import paths
from actors._host.files.listing import names
from actors.volume.csi import disk, policy, staged
from actors.volume.steps.csi import Staged, Volume
from proto.node.node import SetVolumesInUse

log = logging.getLogger(__name__)


def unique_name(driver: str, handle: str) -> str:
    """The volume's name in the Node's status."""
    return f"kubernetes.io/csi/{driver}^{handle}"


class Found(NamedTuple):
    """Persistent CSI volumes on disk, by their unique names."""

    by_pod: dict[str, set[str]]
    """By pod UID."""
    staged: frozenset[str]
    unreadable: frozenset[str]
    """UIDs of pods with a mounted volume whose record is unreadable. Its name is not known."""
    lost: bool
    """Such a volume is staged, or may be."""


def find(root: str) -> Found:
    """Read vol_data.json of all volumes. Blocks; raises OSError."""
    by_pod: dict[str, set[str]] = {}
    unreadable = set()
    for uid in names(paths.pods_dir(root)):
        volumes, lost = disk.look(root, uid, warn=True)
        if found := {_name(one) for one in volumes} - {""}:
            by_pod[uid] = found
        for one in lost:
            log.error("pod %s: %s; its volume counts as in use while the pod is here", uid, one.error)
            unreadable.add(uid)
    kept = staged.find(root)
    left = frozenset(unique_name(one.driver, one.handle) for one in kept.volumes)
    return Found(by_pod, left, frozenset(unreadable), lost=bool(kept.unreadable))


def _name(volume: Volume) -> str:
    """Empty for an ephemeral volume, which has no attachment."""
    own = policy.ephemeral_handle(volume.uid, volume.spec_name)
    return "" if volume.handle == own else unique_name(volume.driver, volume.handle)


class InUse:
    """The volumes in use, by pod, and the last report. Without an API server every wanted volume counts as reported."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._more: Future[None] = Future()
        """Done at the next report of the Node."""
        self._has_server = bool(actor.settings.kubeconfig)
        self._by_pod: dict[str, set[str]] = {}
        self.leaving: frozenset[str] = frozenset()
        """Volumes of no pod that may still be staged; see `settle`."""
        self.on_leaving: Callable[[], None] = lambda: None
        """Called when there are more of them."""
        self._reported: frozenset[str] = frozenset()
        """Volumes that the Node has reported since they were last added."""
        self._number = actor.bus.incarnation << 32
        """Of the last list that was sent; more than those of earlier incarnations."""
        self._since: dict[str, int] = {}
        """Number of the first of the lists in a row that have the volume."""
        self._known = False
        """The volumes of earlier incarnations are known; a report before that would lack them."""
        self._dropped: set[str] = set()
        """Pods that were unmounted before that."""

    def take_over(self, found: Found, listed: Iterable[str]) -> None:
        """Add the volumes that were found on disk, and start reporting.

        `listed`: the Node's volumes in use. A pod with an unreadable record may have any of them, and any may be staged
        if the record of a staged one is unreadable.
        """
        more = found.by_pod | {uid: found.by_pod.get(uid, set()).union(listed) for uid in found.unreadable}
        for uid, volumes in more.items():
            if uid not in self._dropped:
                self._by_pod.setdefault(uid, set()).update(volumes)
        self.leaving |= found.staged.union(listed if found.lost else ())
        self._known = True
        self._dropped.clear()
        self.tell()
        if self.leaving:
            self.on_leaving()

    def want(self, uid: str, driver: str, handle: str) -> bool:
        """Add a volume that a pod is about to mount; True when the Node reports it already."""
        name = unique_name(driver, handle)
        if not self._has_server:
            return True
        if name not in self._by_pod.setdefault(uid, set()):
            before = self.names()
            self._by_pod[uid].add(name)
            if name not in before:
                self.tell()
        return name in self._reported

    def drop(self, uid: str) -> None:
        """Remove a pod of which no volumes are left in its directory. They stay in use while they are staged."""
        if self._has_server and not self._known:
            self._dropped.add(uid)
        volumes = self._by_pod.pop(uid, None)
        if volumes:
            self.leaving |= volumes
            self.on_leaving()

    def settle(self, left: frozenset[str], found: Iterable[Staged]) -> None:
        """Remove volumes that are not staged. `left`: `leaving` as it was before the staged volumes were listed.

        All of them have to be known: not while the record of one is unreadable.
        """
        before = self.names()
        self.leaving -= left.difference(unique_name(one.driver, one.handle) for one in found)
        if self.names() != before:
            self.tell()

    def names(self) -> frozenset[str]:
        """Unique names of all volumes in use."""
        return self.leaving.union(*self._by_pod.values())

    def tell(self) -> None:
        """Send the list to the node actor: at each change, and when that actor has started."""
        if not self._has_server or not self._known:
            return
        names = self.names()
        self._number += 1
        self._since = {name: self._since.get(name, self._number) for name in names}
        self._reported &= names
        self._actor.peer("node").tell(SetVolumesInUse(volumes=tuple(sorted(names)), number=self._number))

    def reported(self, names: frozenset[str], number: int) -> None:
        """Node has written these names, of the list with this number, to its status.

        A list from before a volume was dropped does not count for it: the Node's next write lacks the volume.
        """
        self._reported = frozenset(
            name for name, since in self._since.items() if name in names and (name in self._reported or since <= number)
        )
        more, self._more = self._more, Future()
        more.set(None)

    async def announced(self, uid: str, within_s: float) -> None:
        """Wait at most `within_s` seconds until the Node reports all of the pod's volumes."""
        deadline = time.monotonic() + within_s
        while self._by_pod.get(uid, set()) - self._reported and (left_s := deadline - time.monotonic()) > 0:
            pause = self._actor.sleep(left_s)
            await first_of(self._more, pause)
            pause.cancel()
