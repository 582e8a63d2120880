"""What is to be done at the API server about one pod, next. Pure.

Asked again after each deed, and whenever a side has changed, until there is nothing: no order of events matters.
Source: syncPod, canBeDeleted and needsUpdate of pkg/kubelet/status/status_manager.go, tryReconcileMirrorPods and
deleteOrphanedMirrorPods of pkg/kubelet.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from actors._host.node.critical import MIRROR_ANNOTATION
from actors.status import own_part as parts
from actors.status.api_view import ApiView, Seen
from actors.status.policy import TERMINAL
from proto.pods.status import Stage
from proto.v1 import Pod, PodStatus, to_dict

HASH_ANNOTATION = "kubernetes.io/config.hash"


class Order(IntEnum):
    """What goes first while the API server takes less than there is."""

    FINAL = 0
    """The end of a pod: others wait for its place, its volumes, its name."""
    READINESS = 1
    """Whether Services send to it."""
    REST = 2


class Known(NamedTuple):
    """One of this node's pods, as pod_workers has told it last."""

    pod: Pod
    stage: Stage


class Written(NamedTuple):
    """Digests of what was written last and of what the server made of it: a field that it drops, or writes otherwise,
    is no reason to write again."""

    sent: bytes
    stored: bytes


class WriteStatus(NamedTuple):
    """PATCH of the status of `seen`."""

    seen: Seen
    own: PodStatus


class DeleteObject(NamedTuple):
    """DELETE of exactly this object, at once."""

    seen: Seen


class CreateMirror(NamedTuple):
    """POST of the static pod's mirror."""

    pod: Pod


Duty = WriteStatus | DeleteObject | CreateMirror


def status_duty(known: Known, there: Seen, written: Written | None, *, overwritten: bool) -> Duty | None:
    """For a pod that the API server has as `there`. `overwritten`: also when only the server's side has changed, which
    is looked at now and then: who else writes our fields may do so as often as we do."""
    api = there.status
    own = parts.own_part(known.pod, known.stage, api)
    sent, stored = parts.digest(own), parts.digest(parts.same_part(api, own))
    new = written is None or written.sent != sent or (overwritten and written.stored != stored)
    if sent != stored and new:
        return WriteStatus(there, own)
    if is_over(known, there):
        return DeleteObject(there)
    return None


def is_over(known: Known, there: Seen) -> bool:
    """Whether the object can go: its end is on record there, and here nothing is left of it."""
    gone = known.stage == "released" and there.phase in TERMINAL
    return gone and there.deleting and not there.held and there.mirror_of is None


def mirror_duty(known: Known | None, name: str, view: ApiView, *, complete: bool) -> Duty | Seen | None:
    """For the mirror pod of a static pod, known by name. A Seen: the mirror is as it should be, and has a status.

    `complete`: pod_workers has told of every pod there is, so that a mirror without its static pod is a leftover.
    """
    there = view.mirror(name)
    if known is None:
        return DeleteObject(there) if there is not None and not there.held and complete else None
    if known.stage != "sync":
        return there if there is not None and is_mirror_of(there, known.pod) else None
    if there is None:
        return CreateMirror(known.pod) if view.complete and not view.foreign(name) else None
    if there.held:
        return None
    if there.deleting or not is_mirror_of(there, known.pod) or _of_an_earlier_life(there, known.pod):
        return DeleteObject(there)
    return there


def is_mirror_of(there: Seen, pod: Pod) -> bool:
    """Whether it was made of this very version of the static pod."""
    return there.mirror_of == pod.metadata.annotations.get(HASH_ANNOTATION)


def _of_an_earlier_life(there: Seen, pod: Pod) -> bool:
    """It says that the pod has ended, which the same manifest began anew since."""
    return there.phase in TERMINAL and pod.status.phase not in TERMINAL


def mirror_object(pod: Pod, node_name: str, node_uid: str) -> dict[str, Any]:
    """The mirror pod to create. It belongs to the Node, so that it goes with it."""
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


def order_of(known: Known | None, there: Seen | None) -> Order:
    """How urgent the word on a pod is."""
    if known is None:
        return Order.REST
    if known.stage in parts.OVER or known.pod.status.phase in TERMINAL:
        return Order.FINAL
    if parts.is_ready(known.pod.status) != (there is not None and parts.is_ready(there.status)):
        return Order.READINESS
    return Order.REST
