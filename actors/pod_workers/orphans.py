"""Pods that run though no source wants them: what must be known of them to end them, read off the runtime. Pure."""

from __future__ import annotations

from actors.pod_workers.view import PodView
from proto.v1 import Container, ObjectMeta, Pod, PodSpec


def orphan_pod(uid: str, view: PodView) -> Pod:
    """A pod object from CRI labels and annotations, enough to end it in grace (pkg/kubelet/container, ToAPIPod)."""
    name, namespace = view.pod_name, view.pod_namespace
    containers = tuple(Container(name=container) for container in sorted({c.name for c in view.containers}))
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid),
        spec=PodSpec(
            containers=containers,
            # Not known, and not needed to end it. With any other one its exits would be published as the pod's failure,
            # which a static pod of that UID would be taken up with should it come back just now.
            restart_policy="Always",
            termination_grace_period_seconds=view.grace_period_s,
        ),
    )
