"""Orphans: pods that run although no source wants them. Finds foreign ones, and rebuilds pod objects to end ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from actors._host.files.own_pods import OwnPods
from actors._host.node.critical import SOURCE_ANNOTATION, is_static
from actors.pod_workers.model.desired import full_name
from actors.pod_workers.model.view import ContainerView, PodView
from proto.common import untrusted
from proto.v1 import Container, ContainerPort, Lifecycle, LifecycleHandler, ObjectMeta, Pod, PodSpec

log = logging.getLogger(__name__)

REMEMBERED = 1000
"""Most foreign pods that are remembered. Beyond that the oldest are checked and logged again."""
SHOWN = 20
STATIC = ("file", "http")
"""Sources of static pods."""
_COMPUTED = re.compile(r"[0-9a-f]{32}")
"""The UID of a static pod whose manifest names none."""
_REMOVE = ", which this one's manifest names, too; remove metadata.uid there"


class ForeignPods:
    """The pods in the runtime that are not known to be ours. They run on, and each is logged once."""

    def __init__(self, own: OwnPods) -> None:
        self._own = own
        self._known: dict[str, str] = {}
        """Full name by UID, oldest first."""
        self.refused: dict[str, str] = {}
        """Why, by NAMESPACE/NAME."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def ours_of(self, views: Mapping[str, PodView]) -> list[str]:
        """Return the UIDs of the unwanted pods to end. The others are foreign: they are logged once and left alone."""
        ours = self._own.among(views)
        foreign = {uid: f"{one.pod_namespace}/{one.pod_name}" for uid, one in views.items() if uid not in ours}
        if new := {uid: name for uid, name in foreign.items() if uid not in self._known}:
            log.warning("%s", foreign_line(new))
        self._known |= foreign
        for uid in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[uid]
        return [uid for uid in views if uid in ours]

    def refuses(self, pod: Pod, seen: Callable[[], bool]) -> bool:
        """Return True when the pod must not begin: its manifest names the UID of another agent's pod.

        We would take that pod's sandboxes and cgroup for ours. `seen` returns True when the runtime or a cgroup has
        something under the UID. A refusal is logged once. UIDs of the API server and UIDs that we compute are unique.
        """
        uid, name = pod.metadata.uid, f"{pod.metadata.namespace}/{pod.metadata.name}"
        if not is_static(pod) or _COMPUTED.fullmatch(uid) or not seen() or self._own.has(uid):
            self.refused.pop(name, None)
            return False
        if name not in self.refused:
            self.refused[name] = f"another agent has a pod with the UID {uid}{_REMOVE}"
            log.error("pod %s is not begun: %s", name, self.refused[name])
        return True

    def claim(self, uid: str) -> bool:
        """Take a pod that a source wants after all for ours. Return True when it was foreign before."""
        return self._known.pop(uid, None) is not None

    def described(self) -> list[str]:
        """NAME (UID) of the first 20, for a console."""
        return [f"{name} ({uid})" for uid, name in sorted(self._known.items())[:SHOWN]]


def foreign_line(new: Mapping[str, str]) -> str:
    """Return the log line about newly seen foreign pods, given their full names by UID."""
    named = [f"{name[:120]} ({uid[:60]})" for uid, name in sorted(new.items())[:5]]
    more = f" and {len(new) - len(named)} more" if len(new) > len(named) else ""
    return (
        f"the container runtime runs pods that no source wants and that are not known to be this agent's: "
        f"{', '.join(named)}{more}; they are left alone. If they are this node's, start with --take-over to end them"
    )


def orphan_pod(uid: str, view: PodView) -> Pod:
    """A pod object from CRI labels and annotations, enough to end the pod (pkg/kubelet/container, ToAPIPod)."""
    name, namespace = view.pod_name, view.pod_namespace
    newest = {container.name: container for container in reversed(view.containers)}
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        spec=PodSpec(
            containers=tuple(restored_container(newest[one]) for one in sorted(newest)),
            # The real policy is not known. With another one, exits would be published as the pod's failure, and a
            # static pod of that UID that comes back now would start as Failed.
            restart_policy="Always",
            termination_grace_period_seconds=view.grace_period_s,
        ),
    )


def is_rebuilt(pod: Pod) -> bool:
    """Return True for a pod of `orphan_pod`. Each source marks its pods; the runtime's labels do not have the mark."""
    return SOURCE_ANNOTATION not in pod.metadata.annotations


def replaced(views: Mapping[str, PodView], waiting: Collection[str], seen: Collection[str]) -> dict[str, PodView]:
    """Return the static pods whose source has a new pod of the same full name, which waits for their end.

    `waiting`: full names of pods that wait. `seen`: the sources that have sent their pods. These pods do not wait for
    the other sources: the API server may run in the new one.
    """
    found = {}
    for uid, view in views.items():
        source = view.sandboxes[0].source if view.sandboxes else ""
        if source in STATIC and source in seen and full_name(orphan_pod(uid, view)) in waiting:
            found[uid] = view
    return found


def runs_under(pod: Pod, others: Iterable[Pod], unclaimed: Mapping[str, PodView]) -> bool:
    """Return True when a pod of another UID may run under this pod's full name.

    `unclaimed`: UID to view of pods in the runtime that no source has claimed yet.
    """
    own = pod.metadata
    orphans = (orphan_pod(other, view) for other, view in unclaimed.items() if other != own.uid)
    # By parts: each new pod is compared with every other, and making a full name costs more than the comparison.
    return any(
        other.metadata.name == own.name and other.metadata.namespace == own.namespace
        for other in chain(others, orphans)
    )


def restored_container(found: ContainerView) -> Container:
    """The preStop hook, and the ports it may name, from a container's annotations.

    Source: restoreSpecsFromContainerLabels in pkg/kubelet/kuberuntime.
    """
    pre_stop: LifecycleHandler | None = _decoded(found.pre_stop_handler, LifecycleHandler)
    return Container(
        name=found.name,
        ports=_decoded(found.ports, tuple[ContainerPort, ...]) or (),
        lifecycle=Lifecycle(pre_stop=pre_stop) if pre_stop is not None else None,
    )


def _decoded(text: str, kind: Any) -> Any:
    # Another tool may have written the annotation. The container then ends without its hook.
    try:
        return untrusted.decode_json(text, kind) if text else None
    except msgspec.DecodeError:
        return None
