"""The API server's view of this node's pods, as far as the actor knows. Pure.

The sources are config, which watches the pods, and the answers to writes. The higher resourceVersion wins: a watch may
report a change after this actor has made the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from actors._host.node.critical import MIRROR_ANNOTATION
from actors._kube.shapes import version_number
from proto.v1 import Pod, PodStatus

_decoder = msgspec.msgpack.Decoder(PodStatus)


class ApiPod(NamedTuple):
    """One pod of the API server. The status is packed to save memory: only a pending write needs it."""

    uid: str
    name: str
    """NAMESPACE/NAME"""
    version: int | None
    """resourceVersion; None where it is no number."""
    mirror_of: str | None
    """Config hash of the static pod that a mirror pod was made of; None for other pods."""
    deleting: bool
    """It has a deletionTimestamp."""
    awaits_finalizers: bool
    """Its grace period is 0 and it has finalizers: it needs no further DELETE.

    With a grace period of 0 and no finalizers it needs another one. The server first writes the grace period and then
    removes the object; it skips the second part when its caller hangs up in between.
    """
    phase: str
    packed: bytes

    @property
    def status(self) -> PodStatus:
        """The status, unpacked on each access."""
        return _decoder.decode(self.packed)


def api_pod(pod: Pod) -> ApiPod:
    """Make the record of a pod."""
    meta = pod.metadata
    return ApiPod(
        uid=meta.uid,
        name=full_name(pod),
        version=version_number(meta.resource_version or ""),
        mirror_of=meta.annotations.get(MIRROR_ANNOTATION),
        deleting=meta.deletion_timestamp is not None,
        awaits_finalizers=meta.deletion_timestamp is not None
        and meta.deletion_grace_period_seconds == 0
        and bool(meta.finalizers),
        phase=pod.status.phase or "",
        packed=msgspec.msgpack.encode(pod.status),
    )


def full_name(pod: Pod) -> str:
    """NAMESPACE/NAME."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


class ApiView:
    """State: the API server's pods by UID. Methods that change it return the keys (`key_of`) to compare again."""

    def __init__(self) -> None:
        self.pods: dict[str, ApiPod] = {}
        self.complete = False
        """config has sent a full list."""
        self._deleted: set[str] = set()
        """UIDs that this actor has deleted. A late report does not bring them back, as UIDs are not reused."""
        self._by_name: dict[str, dict[str, ApiPod]] = {}
        """The pods of each NAMESPACE/NAME, by UID."""

    def replace(self, pods: Iterable[Pod]) -> set[str]:
        """Replace all pods. Versions are not compared: they may be those of another etcd."""
        before, self.complete = self.pods, True
        told = {pod.metadata.uid: api_pod(pod) for pod in pods}
        self._deleted &= told.keys()
        self.pods, self._by_name = {}, {}
        for one in told.values():
            if one.uid not in self._deleted:
                self._put(one)
        changed = {uid for uid in before.keys() | self.pods.keys() if before.get(uid) != self.pods.get(uid)}
        return {key_of(one) for uid in changed for one in (before.get(uid), self.pods.get(uid)) if one is not None}

    def change(self, pods: Iterable[Pod]) -> set[str]:
        """Take new or changed pods."""
        changed = set()
        for pod in pods:
            new = api_pod(pod)
            old = self.pods.get(new.uid)
            if new.uid in self._deleted or new == old or _older(new, old):
                continue
            self._put(new)
            changed.add(key_of(new))
            changed.add(new.name)  # a static pod may wait for this pod to go, or for its mirror to come
        return changed

    def remove(self, uids: Iterable[str]) -> set[str]:
        """Drop pods that are gone."""
        changed = set()
        for uid in uids:
            self._deleted.discard(uid)
            if (gone := self._pop(uid)) is not None:
                changed |= {key_of(gone), gone.name}
        return changed

    def deleted_by_us(self, uid: str) -> None:
        """Drop a pod after a DELETE that the API server answered."""
        if self._pop(uid) is not None:
            self._deleted.add(uid)

    def _put(self, one: ApiPod) -> None:
        self._pop(one.uid)
        self.pods[one.uid] = one
        self._by_name.setdefault(one.name, {})[one.uid] = one

    def _pop(self, uid: str) -> ApiPod | None:
        gone = self.pods.pop(uid, None)
        if gone is not None:
            namesakes = self._by_name[gone.name]
            del namesakes[uid]
            if not namesakes:
                del self._by_name[gone.name]
        return gone

    def mirrors(self) -> list[ApiPod]:
        """All mirror pods."""
        return [one for one in self.pods.values() if one.mirror_of is not None]

    def mirror(self, name: str) -> ApiPod | None:
        """The mirror pod of NAMESPACE/NAME; of two, the one without a deletionTimestamp."""
        found = [one for one in self._by_name.get(name, {}).values() if one.mirror_of is not None]
        return max(found, key=lambda one: (not one.deleting, one.version or 0), default=None)

    def foreign(self, name: str) -> bool:
        """True when a pod of this name is no mirror, so that no mirror can be created."""
        return any(one.mirror_of is None for one in self._by_name.get(name, {}).values())


def key_of(one: ApiPod) -> str:
    """The pod's key in the write queue: the UID, or for a mirror pod the name it shares with its static pod."""
    return one.uid if one.mirror_of is None else one.name


def _older(new: ApiPod, old: ApiPod | None) -> bool:
    return old is not None and old.version is not None and new.version is not None and new.version < old.version
