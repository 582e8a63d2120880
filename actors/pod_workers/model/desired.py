"""The desired pods of all sources, by UID. Pure.

Like the kubelet's podManager and PodConfig: applies an update of a source, and returns the pods that it adds, changes
and removes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from proto.cri.labels import CONFIG_SEEN
from proto.pods.pod_workers import PodTrace, PodUpdate
from proto.v1 import Pod

API = "api"
"""The source whose pods stay desired while it does not answer."""
REMOTE = (API, "http")
"""Sources that may not answer for hours."""


@dataclass(frozen=True, slots=True)
class Change:
    """The result of an update, as UIDs."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    """New pods that wait, as a pod of another source has their UID."""


@dataclass
class Desired:
    """The pods wanted now.

    `sources`: of this agent. No orphan is ended before each of them has sent a SET.
    """

    sources: tuple[str, ...] = ("file",)
    pods: dict[str, Pod] = field(default_factory=dict)
    source_of: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    """UIDs from the checkpoint of API pods that the API server has not named yet."""
    traces: dict[str, PodTrace] = field(default_factory=dict)
    """By UID: traces of starts that no worker has begun."""
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By UID: when the source saw and told a pod that no worker has begun. Unix nanoseconds."""

    contested: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """Pods whose UID a pod of another source has, by source and UID. They wait until that pod is removed."""

    def ready(self) -> bool:
        """Return True once every source has sent a SET."""
        return self.seen.issuperset(self.sources)

    def local_seen(self) -> bool:
        """The same without remote sources. Pods never wait for these, since their servers may run in one of them."""
        return self.seen.issuperset(source for source in self.sources if source not in REMOTE)

    def from_api(self, uid: str) -> bool:
        """Return True for a pod of the API server."""
        return self.source_of.get(uid) == API

    def restore(self, pods: Iterable[Pod]) -> None:
        """Want the API pods of the checkpoint until the API server removes them."""
        self.apply(PodUpdate(source=API, op="ADD", pods=tuple(pods)))
        self.restored.update(self.pods)

    def apply(self, update: PodUpdate) -> Change:
        """Apply an update; a repeat changes nothing. A pod keeps the time at which it was first seen."""
        incoming = {pod.metadata.uid or "": self._as_first_seen(pod) for pod in update.pods}
        waiting = self.contested.setdefault(update.source, {})
        if update.op == "REMOVE":
            for uid in incoming:
                waiting.pop(uid, None)
            removed = self._remove(sorted(uid for uid in incoming if self.source_of.get(uid) == update.source))
            return Change(added=self._admit_contested(removed), removed=removed)
        others = [uid for uid in incoming if uid in self.pods and self.source_of[uid] != update.source]
        contested = {uid: incoming.pop(uid) for uid in others}
        self.restored.difference_update(incoming)
        removed = ()
        if update.op == "SET":
            self.seen.add(update.source)
            mine = {uid for uid, source in self.source_of.items() if source == update.source}
            removed = self._remove(sorted(mine - incoming.keys()))
            for uid in waiting.keys() - contested.keys():
                del waiting[uid]
        new = tuple(uid for uid in contested if uid not in waiting)
        waiting.update(contested)
        added = tuple(uid for uid in incoming if uid not in self.pods)
        updated = tuple(uid for uid, pod in incoming.items() if uid in self.pods and self.pods[uid] != pod)
        for uid in (*added, *updated):
            self.pods[uid] = incoming[uid]
            self.source_of[uid] = update.source
        self.traces |= {uid: update.traces[uid] for uid in added if uid in update.traces}
        if update.seen_ns:
            self.arrivals |= dict.fromkeys(added, (update.seen_ns, update.told_ns))
        return Change((*added, *self._admit_contested(removed)), updated, removed, new)

    def _admit_contested(self, removed: Iterable[str]) -> tuple[str, ...]:
        """Want a pod of another source in place of each removed one whose UID it has."""
        found = [(uid, source) for uid in removed for source, waiting in self.contested.items() if uid in waiting]
        for uid, source in found:
            if uid not in self.pods:
                self.pods[uid], self.source_of[uid] = self.contested[source].pop(uid), source
        return tuple(dict.fromkeys(uid for uid, _ in found))

    def _remove(self, uids: Iterable[str]) -> tuple[str, ...]:
        gone = tuple(uid for uid in uids if uid in self.pods)
        for uid in gone:
            del self.pods[uid]
            del self.source_of[uid]
            self.traces.pop(uid, None)
            self.arrivals.pop(uid, None)
            self.restored.discard(uid)
        return gone

    def _as_first_seen(self, pod: Pod) -> Pod:
        known = self.pods.get(pod.metadata.uid)
        seen = known.metadata.annotations.get(CONFIG_SEEN) if known is not None else None
        if seen is None or pod.metadata.annotations.get(CONFIG_SEEN) == seen:
            return pod
        annotations = {**pod.metadata.annotations, CONFIG_SEEN: seen}
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def full_name(pod: Pod) -> str:
    """NAME_NAMESPACE. Only one static pod of a full name may run at a time."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"
