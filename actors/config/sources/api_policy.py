"""The view of the API server's pods, and the messages for status and pod_workers that its changes need. Pure.

Decodes pods, separates mirror pods, selects the changes that pod workers act on, and recognises lists of a server that
has gone back in time.
Source: PodConfig of pkg/kubelet/config and https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from actors._files import typed
from actors._host.node.conditions import KUBELET_CONDITIONS
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
    """An object that is no valid pod."""

    uid: str
    name: str
    namespace: str
    problem: str


def decode(item: dict[str, Any], seen: str) -> Pod | BadPod:
    """Decode an API object, without managedFields and with its defaults. Unknown fields are ignored.

    `seen` is the time now, RFC 3339; pod_workers keeps the time of the first version.
    """
    meta = item.get("metadata") or {}
    if isinstance(meta, dict):
        item = {**item, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
    try:
        pod = _typed(item)
    except typed.WrongType as error:
        problem = f"{field_text(error.path)}: {error.problem}"
        meta = meta if isinstance(meta, dict) else {}
        uid, name, namespace = (str(meta.get(key) or "") for key in ("uid", "name", "namespace"))
        return BadPod(uid, name, namespace, problem)
    for name, text in _path_components(pod):
        if problem := component_problem(text):
            return BadPod(pod.metadata.uid, pod.metadata.name, pod.metadata.namespace, f"{name}: {problem}")
    return mark_seen(default_pod(pod), SOURCE, seen)


def _path_components(pod: Pod) -> Iterator[tuple[str, str]]:
    """(field, value) of names that become components of paths on the node."""
    meta, spec = pod.metadata, pod.spec
    yield from (("metadata.uid", meta.uid), ("metadata.name", meta.name), ("metadata.namespace", meta.namespace))
    for one in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        yield "spec.containers.name", one.name
    for volume in spec.volumes:
        yield "spec.volumes.name", volume.name


def _typed(item: dict[str, Any]) -> Pod:
    """Decode directly; only where that fails with `typed`, which is slower and takes null for any field, as Go does."""
    try:
        return v1.from_dict(Pod, item)
    except msgspec.ValidationError:
        return typed.convert(Pod, item)


def is_mirror(pod: Pod) -> bool:
    """True when the pod is the mirror of a static pod, which is not run."""
    return CONFIG_MIRROR in pod.metadata.annotations


Op = Literal["ADD", "UPDATE", "DELETE", "REMOVE", "RECONCILE"]


@dataclass
class ViewChange:
    """Messages after a change of the view, in the order of sending.

    status gets `shown`, new or changed pods, and `gone`, UIDs. pod_workers gets `updates`.
    """

    shown: list[Pod] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    updates: list[tuple[Op, tuple[Pod, ...]]] = field(default_factory=list)
    bad: list[BadPod] = field(default_factory=list)
    """Objects that were not known to be bad before."""


@dataclass
class ApiView:
    """The API server's pods of this node by UID."""

    pods: dict[str, Pod] = field(default_factory=dict)
    """Pods to run, without mirror pods."""
    mirrors: dict[str, Pod] = field(default_factory=dict)
    bad: dict[str, BadPod] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    """UIDs in `pods` of which the server has no object; they run on."""

    def replaced(self, found: Iterable[Pod | BadPod], *, keep_missing: bool) -> ViewChange:
        """Take a list. `keep_missing`: pods that it lacks run on."""
        change, pods, mirrors, bad = ViewChange(), dict[str, Pod](), dict[str, Pod](), dict[str, BadPod]()
        for one in found:
            if isinstance(one, BadPod):
                bad[one.uid] = one
                if one.uid in self.pods:
                    pods[one.uid] = self.pods[one.uid]
            else:
                (mirrors if is_mirror(one) else pods)[one.metadata.uid] = one
        change.gone = [uid for uid in (*self.pods, *self.mirrors) if uid not in pods and uid not in mirrors]
        change.shown = [*pods.values(), *mirrors.values()]
        change.bad = [one for uid, one in bad.items() if self.bad.get(uid) != one]
        self.missing = set(self.pods) - set(pods) if keep_missing else set()
        pods = {**{uid: self.pods[uid] for uid in self.missing}, **pods}
        change.updates = _updates(merge(self.pods.values(), pods.values(), same=_same_for_workers))
        self.pods, self.mirrors, self.bad = pods, mirrors, bad
        return change

    def changed(self, kind: str, one: Pod | BadPod) -> ViewChange:
        """Take one event of the watch: ADDED, MODIFIED or DELETED."""
        if kind == "DELETED":
            return self._deleted(one.uid if isinstance(one, BadPod) else one.metadata.uid)
        if isinstance(one, BadPod):
            change = ViewChange(bad=[one] if self.bad.get(one.uid) != one else [])
            self.bad[one.uid] = one
            return change
        uid = one.metadata.uid
        self.bad.pop(uid, None)
        self.missing.discard(uid)
        if is_mirror(one):
            self.mirrors[uid] = one
            return ViewChange(shown=[one])
        known = self.pods.get(uid)
        self.pods[uid] = one
        changes = merge((known,) if known is not None else (), (one,), same=_same_for_workers)
        return ViewChange(shown=[one], updates=_updates(changes))

    def shown(self) -> list[Pod]:
        """All pods that the server has."""
        return [*(pod for uid, pod in self.pods.items() if uid not in self.missing), *self.mirrors.values()]

    def _deleted(self, uid: str) -> ViewChange:
        self.bad.pop(uid, None)
        self.missing.discard(uid)
        self.mirrors.pop(uid, None)
        known = self.pods.pop(uid, None)
        return ViewChange(gone=[uid], updates=[("REMOVE", (known,))] if known is not None else [])


def _updates(changes: Changes) -> list[tuple[Op, tuple[Pod, ...]]]:
    """The operations of PodUpdate; as in the kubelet, updates with a deletionTimestamp are DELETE."""
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
    """True when the statuses differ only in fields that this node writes itself."""
    return _foreign_fields(before) == _foreign_fields(after)


def _foreign_fields(pod: Pod) -> tuple[tuple[PodCondition, ...], str | None]:
    status = pod.status
    conditions = tuple(one for one in status.conditions if one.type not in KUBELET_CONDITIONS)
    return conditions, status.phase if status.phase in TERMINAL else None


def view_of(pod: Pod) -> Pod:
    """The pod as status gets it: without the spec."""
    spec: PodSpec = NO_SPEC
    return replace(pod, spec=spec)


# A server that has gone back in time


class SeenVersion(NamedTuple):
    """The newest resourceVersion seen; `behind`: the server has gone back to an older one.

    A server whose etcd was emptied or restored from a backup lacks pods that run; that is no reason to end them.
    Versions only grow (KEP-5504), so a list that is older than the last one is the sign.
    """

    version: int = 0
    behind: bool = False


Verdict = Literal["take", "ask_newest", "keep_missing"]


def judge_list(seen: SeenVersion, version: int, *, from_etcd: bool) -> tuple[Verdict, SeenVersion]:
    """Decide what to do with a list of `version`, and the SeenVersion to keep.

    `from_etcd`: the list did not come from a server's cache, which may lag.
    """
    if seen.behind:
        return "keep_missing", seen
    if version >= seen.version:
        return "take", SeenVersion(version)
    if not from_etcd:
        return "ask_newest", seen
    return "keep_missing", SeenVersion(seen.version, behind=True)
