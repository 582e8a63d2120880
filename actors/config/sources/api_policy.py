"""What the API server says of this node's pods, and what of that is news for whom. Pure.

Covers decoding, mirror pods, which changes of a pod are the pod workers' business, and lists of a server that has gone
back in time. Source: PodConfig of pkg/kubelet/config and https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from actors._files import typed
from actors._host.node.conditions import OF_KUBELET
from actors.config.defaulting.defaults import default_pod
from actors.config.pods.static_pods import CONFIG_MIRROR, mark_seen
from actors.config.policy import Changes, merge
from proto import v1
from proto.common.safe_text import component_problem
from proto.schema.fieldpath import field_text
from proto.v1 import Pod, PodCondition, PodSpec
from proto.v1.pod import NO_SPEC

SOURCE = "api"
TERMINAL = ("Succeeded", "Failed")


class BadPod(NamedTuple):
    """An object that cannot be a pod."""

    uid: str
    name: str
    namespace: str
    problem: str


def decoded(item: dict[str, Any], seen: str) -> Pod | BadPod:
    """An object of the API as the pod that runs, without what only the server needs. Unknown fields are ignored.

    `seen`: now, RFC 3339; a pod that was seen before keeps its time, see `pod_workers.desired`.
    """
    meta = item.get("metadata") or {}
    item = {**item, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
    try:
        pod = _typed(item)
    except typed.WrongType as error:
        problem = f"{field_text(error.path)}: {error.problem}"
        uid, name, namespace = (str(meta.get(key) or "") for key in ("uid", "name", "namespace"))
        return BadPod(uid, name, namespace, problem)
    for name, text in _in_paths(pod):
        if problem := component_problem(text):
            return BadPod(pod.metadata.uid, pod.metadata.name, pod.metadata.namespace, f"{name}: {problem}")
    return mark_seen(default_pod(pod), SOURCE, seen)


def _in_paths(pod: Pod) -> Iterator[tuple[str, str]]:
    """(field, value) of what becomes a part of a path on the node."""
    meta, spec = pod.metadata, pod.spec
    yield from (("metadata.uid", meta.uid), ("metadata.name", meta.name), ("metadata.namespace", meta.namespace))
    for one in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        yield "spec.containers.name", one.name
    for volume in spec.volumes:
        yield "spec.volumes.name", volume.name


def _typed(item: dict[str, Any]) -> Pod:
    """Straight, as nearly always; and with a closer look where that fails, since Go takes null for any field."""
    try:
        return v1.from_dict(Pod, item)
    except msgspec.ValidationError:
        return typed.convert(Pod, item)


def is_mirror(pod: Pod) -> bool:
    """True when the pod only shows a static one, and is not to be run."""
    return CONFIG_MIRROR in pod.metadata.annotations


Op = Literal["ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"]


@dataclass
class News:
    """What others have to hear, in the order in which they have to: what is new at the server, what it has no more, and
    what that means for the pod workers."""

    shown: list[Pod] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    updates: list[tuple[Op, tuple[Pod, ...]]] = field(default_factory=list)
    bad: list[BadPod] = field(default_factory=list)
    """Those that were not known to be bad before."""


@dataclass
class ApiView:
    """Every pod of this node as last told, by UID."""

    pods: dict[str, Pod] = field(default_factory=dict)
    """Those to run."""
    mirrors: dict[str, Pod] = field(default_factory=dict)
    bad: dict[str, BadPod] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    """Of `pods`, those that go on running though the server does not have them."""

    def replaced(self, found: Iterable[Pod | BadPod], *, keep_missing: bool) -> News:
        """A list. `keep_missing`: what it lacks goes on running all the same, though the server does not have it."""
        news, pods, mirrors, bad = News(), dict[str, Pod](), dict[str, Pod](), dict[str, BadPod]()
        for one in found:
            if isinstance(one, BadPod):
                bad[one.uid] = one
                if one.uid in self.pods:
                    pods[one.uid] = self.pods[one.uid]
            else:
                (mirrors if is_mirror(one) else pods)[one.metadata.uid] = one
        news.gone = [uid for uid in (*self.pods, *self.mirrors) if uid not in pods and uid not in mirrors]
        news.shown = [*pods.values(), *mirrors.values()]
        news.bad = [one for uid, one in bad.items() if self.bad.get(uid) != one]
        self.missing = set(self.pods) - set(pods) if keep_missing else set()
        pods = {**{uid: self.pods[uid] for uid in self.missing}, **pods}
        news.updates = _updates(merge(self.pods.values(), pods.values(), same=_same_for_workers))
        self.pods, self.mirrors, self.bad = pods, mirrors, bad
        return news

    def changed(self, kind: str, one: Pod | BadPod) -> News:
        """One event of the watch: ADDED, MODIFIED or DELETED."""
        if kind == "DELETED":
            return self._deleted(one.uid if isinstance(one, BadPod) else one.metadata.uid)
        if isinstance(one, BadPod):
            news = News(bad=[one] if self.bad.get(one.uid) != one else [])
            self.bad[one.uid] = one
            return news
        uid = one.metadata.uid
        self.bad.pop(uid, None)
        self.missing.discard(uid)
        if is_mirror(one):
            self.mirrors[uid] = one
            return News(shown=[one])
        known = self.pods.get(uid)
        self.pods[uid] = one
        changes = merge((known,) if known is not None else (), (one,), same=_same_for_workers)
        return News(shown=[one], updates=_updates(changes))

    def shown(self) -> list[Pod]:
        """All that the server has."""
        return [*(pod for uid, pod in self.pods.items() if uid not in self.missing), *self.mirrors.values()]

    def _deleted(self, uid: str) -> News:
        self.bad.pop(uid, None)
        self.missing.discard(uid)
        self.mirrors.pop(uid, None)
        known = self.pods.pop(uid, None)
        return News(gone=[uid], updates=[("REMOVE", (known,))] if known is not None else [])


def _updates(changes: Changes) -> list[tuple[Op, tuple[Pod, ...]]]:
    """With a deletion told as such, as the kubelet has it."""
    deleted = tuple(pod for pod in changes.updated if pod.metadata.deletion_timestamp is not None)
    updated = tuple(pod for pod in changes.updated if pod.metadata.deletion_timestamp is None)
    found: tuple[tuple[Op, tuple[Pod, ...]], ...] = (
        ("REMOVE", changes.removed),
        ("ADD", changes.added),
        ("UPDATE", updated),
        ("DELETE", deleted),
        ("RECONCILE", changes.reconciled),
    )
    return [(op, pods) for op, pods in found if pods]


def _same_for_workers(before: Pod, after: Pod) -> bool:
    """True when the statuses differ in nothing but what this node has written itself."""
    return _of_others(before) == _of_others(after)


def _of_others(pod: Pod) -> tuple[tuple[PodCondition, ...], str | None]:
    status = pod.status
    conditions = tuple(one for one in status.conditions if one.type not in OF_KUBELET)
    return conditions, status.phase if status.phase in TERMINAL else None


def view_of(pod: Pod) -> Pod:
    """What status is told of a pod: everything but the spec."""
    spec: PodSpec = NO_SPEC
    return replace(pod, spec=spec)


# A server that has gone back in time


class Doubt(NamedTuple):
    """What is remembered of lists: the newest version seen, and since when the server has been behind it.

    A server whose etcd was emptied, or restored from a backup, does not know pods that run; that is no reason to end
    them. Versions only grow (KEP-5504), so a list that is older than the last one shows it.
    """

    version: int = 0
    behind: bool = False


def judged(doubt: Doubt, version: int, *, newest: bool) -> tuple[Literal["take", "ask_newest", "keep_missing"], Doubt]:
    """What to do with a list of this version, and what to remember then.

    `newest`: it was asked of etcd, and did not come from a server's cache, which may lag behind.
    """
    if doubt.behind:
        return "keep_missing", doubt
    if version >= doubt.version:
        return "take", Doubt(version)
    if not newest:
        return "ask_newest", doubt
    return "keep_missing", Doubt(doubt.version, behind=True)
