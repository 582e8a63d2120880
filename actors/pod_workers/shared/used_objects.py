"""Keeps the API objects that each pod refers to, and sends them to the objects actor as SetPodObjects."""

from __future__ import annotations

from collections.abc import Iterable

from actors._objects.peer import ObjectsRef
from actors.pod_workers.environment.references import pod_references
from proto.pods.objects import ObjectRef, PodObjects, SetPodObjects
from proto.v1 import Pod


class UsedObjects:
    """References by pod UID; pods without any are left out. Call it under the lock of `worker_context.Published`."""

    def __init__(self, objects: ObjectsRef, *, cluster: bool = False) -> None:
        """`cluster`: the objects come from an API server, not from a directory."""
        self._objects = objects
        self._cluster = cluster
        self._refs: dict[str, frozenset[ObjectRef]] = {}

    def set(self, pod: Pod) -> None:
        """Record and send the references of a new or changed pod."""
        self._put(pod.metadata.uid, pod_references(pod, cluster=self._cluster))

    def forget(self, uid: str) -> None:
        """Drop a pod that has been cleaned up completely."""
        self._put(uid, frozenset())

    def _put(self, uid: str, refs: frozenset[ObjectRef]) -> None:
        if self._refs.get(uid, frozenset()) == refs:
            return
        if refs:
            self._refs[uid] = refs
        else:
            del self._refs[uid]
        self._objects.tell(SetPodObjects(pods=(_pod(uid, refs),)))

    def resend(self, *, full: bool) -> None:
        """Send all references to a restarted objects actor. `full`: there are no other pods."""
        self._objects.tell(SetPodObjects(pods=tuple(_pod(uid, refs) for uid, refs in self._refs.items()), full=full))

    def users(self, changed: Iterable[ObjectRef]) -> list[str]:
        """UIDs of pods that refer to one of these objects."""
        refs = frozenset(changed)
        return [uid for uid, own in self._refs.items() if own & refs]

    def all(self) -> list[str]:
        """UIDs of all pods with references."""
        return list(self._refs)


def _pod(uid: str, refs: frozenset[ObjectRef]) -> PodObjects:
    return PodObjects(pod_uid=uid, refs=tuple(sorted(refs)))
