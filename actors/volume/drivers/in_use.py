"""Volumes in use on this node, reported in the Node's status so that no controller detaches them.

A volume that needs an attachment is mounted only once the Node reports it as in use. It stays in the report until
nothing of it is left on disk, so a controller never detaches a mounted volume. Runs in the actor's mailbox thread.
Source: volumesInUse and GenerateVerifyControllerAttachedVolumeFunc of Kubernetes 1.36.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from actors._base import Actor, Future, first_of
from actors._host.files import paths
from actors.volume.csi import disk, policy
from actors.volume.steps.csi import Volume
from proto.node.node import SetVolumesInUse


def unique_name(driver: str, handle: str) -> str:
    """The volume's name in the Node's status."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def find(root: str) -> dict[str, set[str]]:
    """Names of the persistent CSI volumes on disk, by pod UID. Blocks; reads vol_data.json of each.

    Raises VolumeError when the record of a mounted volume is unreadable: a report without it would let it be detached.
    """
    uids = os.listdir(paths.pods_dir(root)) if os.path.isdir(paths.pods_dir(root)) else []
    found = {uid: {_name(one) for one in disk.find(root, uid)} - {""} for uid in uids}
    return {uid: names for uid, names in found.items() if names}


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

    def take_over(self, found: Mapping[str, set[str]]) -> None:
        """Add the volumes that were found on disk, by pod UID, and start reporting."""
        for uid, names in found.items():
            if uid not in self._dropped:
                self._by_pod.setdefault(uid, set()).update(names)
        self._known = True
        self._dropped.clear()
        self.tell()

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
        """Remove a pod of which no volumes are left on disk."""
        if self._has_server and not self._known:
            self._dropped.add(uid)
        before = self.names()
        if self._by_pod.pop(uid, None) is not None and self.names() != before:
            self.tell()

    def names(self) -> frozenset[str]:
        """Unique names of all volumes in use."""
        return frozenset[str]().union(*self._by_pod.values())

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
