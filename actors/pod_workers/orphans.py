"""Pods that run though no source wants them: what must be known of them to end them, read off the runtime. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from actors.pod_workers.desired import full_name
from actors.pod_workers.view import ContainerView, PodView
from proto.v1 import Container, ContainerPort, Lifecycle, LifecycleHandler, ObjectMeta, Pod, PodSpec


def orphan_pod(uid: str, view: PodView) -> Pod:
    """A pod object from CRI labels and annotations, enough to end it in grace (pkg/kubelet/container, ToAPIPod)."""
    name, namespace = view.pod_name, view.pod_namespace
    newest = {container.name: container for container in reversed(view.containers)}
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        spec=PodSpec(
            containers=tuple(restored_container(newest[one]) for one in sorted(newest)),
            # Not known, and not needed to end it. With any other one its exits would be published as the pod's failure,
            # which a static pod of that UID would be taken up with should it come back just now.
            restart_policy="Always",
            termination_grace_period_seconds=view.grace_period_s,
        ),
    )


def runs_under(name: str, uid: str, pods: Iterable[Pod], unclaimed: Mapping[str, PodView]) -> bool:
    """Whether another pod than `uid` may run under a full name: one of `pods`, or what the runtime shows and no source
    has claimed yet."""
    found = [*pods, *(orphan_pod(other, view) for other, view in unclaimed.items() if other != uid)]
    return any(full_name(pod) == name for pod in found)


def restored_container(found: ContainerView) -> Container:
    """What a container's annotations keep of its spec: the preStop hook and the ports it may name
    (restoreSpecsFromContainerLabels in pkg/kubelet/kuberuntime)."""
    pre_stop: LifecycleHandler | None = _decoded(found.pre_stop_handler, LifecycleHandler)
    return Container(
        name=found.name,
        ports=_decoded(found.ports, tuple[ContainerPort, ...]) or (),
        lifecycle=Lifecycle(pre_stop=pre_stop) if pre_stop is not None else None,
    )


def _decoded(text: str, kind: Any) -> Any:
    # Another tool's annotation may be anything; a container is ended without its hook then.
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except msgspec.DecodeError:
        return None
