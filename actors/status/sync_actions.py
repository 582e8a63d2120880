"""The next call that brings one pod at the API server in line with this node. Pure.

The caller asks again after each call, and whenever either side changes, until the answer is None. So the order of
events does not matter. Source: syncPod, canBeDeleted and needsUpdate of pkg/kubelet/status/status_manager.go,
tryReconcileMirrorPods and deleteOrphanedMirrorPods of pkg/kubelet.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from actors._host.node.critical import MIRROR_ANNOTATION
from actors.status import status_patch as patches
from actors.status.api_view import ApiPod, ApiView
from actors.status.policy import TERMINAL
from proto.pods.status import Stage
from proto.v1 import Pod, PodStatus, to_dict

HASH_ANNOTATION = "kubernetes.io/config.hash"


class Priority(IntEnum):
    """Order of writes while the API server takes fewer than are pending."""

    FINAL = 0
    """The end of a pod: others wait for its place, its volumes, its name."""
    READINESS = 1
    """A change of the pod's readiness: Services route by it."""
    REST = 2


class LocalPod(NamedTuple):
    """One of this node's pods, as pod_workers sent it last."""

    pod: Pod
    stage: Stage


class WrittenDigests(NamedTuple):
    """Digests of the last write and of the server's answer to it.

    A field that the server drops or changes is no reason to write again.
    """

    sent: bytes
    stored: bytes


class WriteStatus(NamedTuple):
    """PATCH of the status of `target`."""

    target: ApiPod
    status: PodStatus


class DeleteObject(NamedTuple):
    """DELETE of this object (by UID), with a grace period of 0."""

    target: ApiPod


class CreateMirror(NamedTuple):
    """POST of the mirror of a static pod."""

    pod: Pod


SyncAction = WriteStatus | DeleteObject | CreateMirror


def status_action(
    known: LocalPod, there: ApiPod, written: WrittenDigests | None, *, check_stored: bool
) -> SyncAction | None:
    """The action for a pod that the API server has as `there`.

    `check_stored`: also write when only the server's side differs from the last write. The caller sets it seldom, as
    another writer of our fields may write as often as this node.
    """
    api = there.status
    own = patches.node_status(known.pod, known.stage, api)
    sent, stored = patches.digest(own), patches.digest(patches.comparable(api, own))
    new = written is None or written.sent != sent or (check_stored and written.stored != stored)
    if sent != stored and new:
        return WriteStatus(there, own)
    return DeleteObject(there) if can_be_deleted(known, there) else None


def can_be_deleted(known: LocalPod, there: ApiPod) -> bool:
    """True when the object can go: the server has its terminal phase and the node has released all of its resources."""
    gone = known.stage == "released" and there.phase in TERMINAL
    return gone and there.deleting and not there.awaits_finalizers and there.mirror_of is None


def mirror_action(known: LocalPod | None, name: str, view: ApiView, *, complete: bool) -> SyncAction | ApiPod | None:
    """The action for the mirror of the static pod `name`; an ApiPod when the mirror is right and can take a status.

    `complete`: pod_workers has sent every pod, so that a mirror without its static pod is a leftover.
    """
    there = view.mirror(name)
    if known is None:
        return DeleteObject(there) if there is not None and not there.awaits_finalizers and complete else None
    if known.stage != "sync":
        return there if there is not None and is_mirror_of(there, known.pod) else None
    if there is None:
        return CreateMirror(known.pod) if view.complete and not view.foreign(name) else None
    if there.awaits_finalizers:
        return None
    if there.deleting or not is_mirror_of(there, known.pod) or _ended_before(there, known.pod):
        return DeleteObject(there)
    return there


def is_mirror_of(there: ApiPod, pod: Pod) -> bool:
    """True when the mirror was made of this version (config hash) of the static pod."""
    return there.mirror_of == pod.metadata.annotations.get(HASH_ANNOTATION)


def _ended_before(there: ApiPod, pod: Pod) -> bool:
    """True when the mirror shows an end of the pod after which the same manifest was started again."""
    return there.phase in TERMINAL and pod.status.phase not in TERMINAL


def mirror_object(pod: Pod, node_name: str, node_uid: str) -> dict[str, Any]:
    """The body of the mirror pod. The Node owns it, so that it is collected with the Node."""
    meta = pod.metadata
    annotations = meta.annotations | {MIRROR_ANNOTATION: meta.annotations.get(HASH_ANNOTATION, "")}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": meta.labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": to_dict(pod.spec),
    }


def priority_of(known: LocalPod | None, there: ApiPod | None) -> Priority:
    """The priority of a pod's pending write."""
    if known is None:
        return Priority.REST
    if known.stage in patches.STOPPED_STAGES or known.pod.status.phase in TERMINAL:
        return Priority.FINAL
    if patches.is_ready(known.pod.status) != (there is not None and patches.is_ready(there.status)):
        return Priority.READINESS
    return Priority.REST
