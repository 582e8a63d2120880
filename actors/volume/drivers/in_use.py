"""Which volumes the Node's status says are in use here: no controller detaches those.

A volume that has to be attached is mounted only once the Node says that it is in use, and stays there until nothing of
it is left on disk, so that at no moment one is mounted that a controller may detach. Runs in the actor's mailbox
thread. Source: volumesInUse and GenerateVerifyControllerAttachedVolumeFunc of Kubernetes 1.36.
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
    """What controllers call it."""
    return f"kubernetes.io/csi/{driver}^{handle}"


def find(root: str) -> dict[str, set[str]]:
    """By pod, what is on disk about persistent volumes of drivers. Blocks, reads vol_data.json of each."""
    uids = os.listdir(paths.pods_dir(root)) if os.path.isdir(paths.pods_dir(root)) else []
    found = {uid: {_name(one) for one in disk.find(root, uid)} - {""} for uid in uids}
    return {uid: names for uid, names in found.items() if names}


def _name(volume: Volume) -> str:
    """Empty for one that lives with its pod: nobody attaches those."""
    own = policy.ephemeral_handle(volume.uid, volume.spec_name)
    return "" if volume.handle == own else unique_name(volume.driver, volume.handle)


class InUse:
    """See the module. Without an API server everything is in use that is wanted."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._more: Future[None] = Future()
        """The Node says more than before."""
        self._has_server = bool(actor.settings.kubeconfig)
        self._by_pod: dict[str, set[str]] = {}
        self._reported: frozenset[str] = frozenset()
        self._known = False
        """What an earlier incarnation left is known: before that nothing is told, as it would be too little."""

    def take_over(self, found: Mapping[str, set[str]]) -> None:
        """What is on disk."""
        for uid, names in found.items():
            self._by_pod.setdefault(uid, set()).update(names)
        self._known = True
        self.tell()

    def want(self, uid: str, driver: str, handle: str) -> bool:
        """A pod is about to have it; whether the Node says so already."""
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
        """Nothing of the pod's volumes is left."""
        before = self.names()
        if self._by_pod.pop(uid, None) is not None and self.names() != before:
            self.tell()

    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset[str]().union(*self._by_pod.values())

    def tell(self) -> None:
        """The node actor, when there is more or less, and when it has started."""
        if self._has_server and self._known:
            self._actor.peer("node").tell(SetVolumesInUse(volumes=tuple(sorted(self.names()))))

    def reported(self, names: frozenset[str]) -> None:
        """From node."""
        self._reported = names
        more, self._more = self._more, Future()
        more.set(None)

    async def announced(self, uid: str, within_s: float) -> None:
        """Wait until the Node says that all the pod has is in use, for so long at most."""
        deadline = time.monotonic() + within_s
        while self._by_pod.get(uid, set()) - self._reported and (left_s := deadline - time.monotonic()) > 0:
            pause = self._actor.sleep(left_s)
            await first_of(self._more, pause)
            pause.cancel()
