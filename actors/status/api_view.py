"""The pods of this node as the API server has them, as far as is known here. Pure.

Told by config, which watches them, and by the answers to what is written. Of both the newer word counts: a watch may
tell of a change after this actor has made the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from actors._host.node.critical import MIRROR_ANNOTATION
from proto.v1 import Pod, PodStatus

_decoder = msgspec.msgpack.Decoder(PodStatus)


class Seen(NamedTuple):
    """One pod of the API server's. The status is packed: it is looked at when something is to be written."""

    uid: str
    name: str
    """NAMESPACE/NAME"""
    version: int | None
    """resourceVersion; None where the server's are no numbers."""
    mirror_of: str | None
    """Of a mirror pod: the hash of the static pod it was made of."""
    deleting: bool
    """It has a deletionTimestamp."""
    held: bool
    """Its grace period is 0, and others' finalizers keep it: it goes without another word of ours. An object that
    nobody keeps so has lost whoever deleted it: the server writes the grace period first and removes the object after,
    and does not come to that when its caller, killed perhaps, hangs up in between."""
    phase: str
    packed: bytes

    @property
    def status(self) -> PodStatus:
        """All of it."""
        return _decoder.decode(self.packed)


def seen(pod: Pod) -> Seen:
    """What is kept of one."""
    meta = pod.metadata
    return Seen(
        uid=meta.uid,
        name=full_name(pod),
        version=int(version) if (version := meta.resource_version or "").isdecimal() else None,
        mirror_of=meta.annotations.get(MIRROR_ANNOTATION),
        deleting=meta.deletion_timestamp is not None,
        held=meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds == 0 and bool(meta.finalizers),
        phase=pod.status.phase or "",
        packed=msgspec.msgpack.encode(pod.status),
    )


def full_name(pod: Pod) -> str:
    """NAMESPACE/NAME: what the API server knows it by."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


class ApiView:
    """By UID. The methods that take something in return the keys of what may be due now."""

    def __init__(self) -> None:
        self.pods: dict[str, Seen] = {}
        self.complete = False
        """All there are have been told once."""
        self._deleted: set[str] = set()
        """What we have deleted: a late word of one does not bring it back, as no UID comes twice."""

    def replace(self, pods: Iterable[Pod]) -> set[str]:
        """All there are now. Not compared by version: it may be another etcd's."""
        before, self.complete = self.pods, True
        told = {pod.metadata.uid: seen(pod) for pod in pods}
        self._deleted &= told.keys()
        self.pods = {uid: one for uid, one in told.items() if uid not in self._deleted}
        changed = {uid for uid in before.keys() | self.pods.keys() if before.get(uid) != self.pods.get(uid)}
        return {key_of(one) for uid in changed for one in (before.get(uid), self.pods.get(uid)) if one is not None}

    def change(self, pods: Iterable[Pod]) -> set[str]:
        """New or changed ones."""
        changed = set()
        for pod in pods:
            new = seen(pod)
            old = self.pods.get(new.uid)
            if new.uid in self._deleted or new == old or _older(new, old):
                continue
            self.pods[new.uid] = new
            changed.add(key_of(new))
            changed.add(new.name)  # a static pod may wait for it to go, or have waited for its mirror
        return changed

    def remove(self, uids: Iterable[str]) -> set[str]:
        """Those are gone."""
        changed = set()
        for uid in uids:
            self._deleted.discard(uid)
            if (gone := self.pods.pop(uid, None)) is not None:
                changed |= {key_of(gone), gone.name}
        return changed

    def deleted_by_us(self, uid: str) -> None:
        """The API server has said that it is gone."""
        if self.pods.pop(uid, None) is not None:
            self._deleted.add(uid)

    def mirror(self, name: str) -> Seen | None:
        """The mirror pod of that NAMESPACE/NAME; where one is going and its successor is there, that one."""
        found = [one for one in self.pods.values() if one.name == name and one.mirror_of is not None]
        return max(found, key=lambda one: (not one.deleting, one.version or 0), default=None)

    def foreign(self, name: str) -> bool:
        """Whether a pod of that name is somebody else's: no mirror can be made."""
        return any(one.name == name and one.mirror_of is None for one in self.pods.values())


def key_of(one: Seen) -> str:
    """Under what it is dealt with: the UID, or for a mirror pod the name it shares with its static pod."""
    return one.uid if one.mirror_of is None else one.name


def _older(new: Seen, old: Seen | None) -> bool:
    return old is not None and old.version is not None and new.version is not None and new.version < old.version
