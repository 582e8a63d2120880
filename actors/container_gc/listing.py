"""Converts CRI lists of containers and sandboxes to the policy's views, and skips all without a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors._host.files import paths
from actors.container_gc.policy import ContainerView, SandboxView
from proto.common.safe_text import component_problem
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID, RESTART_COUNT

_MOST_DIGITS = 10
_STATES = {pb.CONTAINER_CREATED: "created", pb.CONTAINER_RUNNING: "running", pb.CONTAINER_EXITED: "exited"}


def container_views(containers: Iterable[pb.Container], pod_logs_dir: str) -> list[ContainerView]:
    """Return views of ListContainers' entries."""
    return [_container(one, pod_logs_dir) for one in containers if _has_pod(one.labels)]


def _container(one: pb.Container, pod_logs_dir: str) -> ContainerView:
    labels = one.labels
    name = labels.get(CONTAINER_NAME, one.metadata.name)
    directory = paths.pod_log_dir(
        pod_logs_dir, labels.get(POD_NAMESPACE, ""), labels.get(POD_NAME, ""), labels[POD_UID]
    )
    restarts = one.annotations.get(RESTART_COUNT, "")
    known = restarts.isdecimal() and len(restarts) <= _MOST_DIGITS
    return ContainerView(
        id=one.id,
        pod_uid=labels[POD_UID],
        name=name,
        attempt=one.metadata.attempt,
        created=one.created_at / 1e9,
        sandbox_id=one.pod_sandbox_id,
        state=_STATES.get(one.state, "unknown"),
        pod_name=labels.get(POD_NAME, ""),
        namespace=labels.get(POD_NAMESPACE, ""),
        log_path=f"{directory}/{paths.container_log_path(name, int(restarts))}" if name and known else "",
    )


def sandbox_views(sandboxes: Iterable[pb.PodSandbox]) -> list[SandboxView]:
    """Return views of ListPodSandbox' entries."""
    return [
        SandboxView(
            id=one.id,
            pod_uid=one.labels[POD_UID],
            attempt=one.metadata.attempt,
            created=one.created_at / 1e9,
            ready=one.state == pb.SANDBOX_READY,
            pod_name=one.labels.get(POD_NAME, ""),
            namespace=one.labels.get(POD_NAMESPACE, ""),
        )
        for one in sandboxes
        if _has_pod(one.labels)
    ]


def _has_pod(labels: Mapping[str, str]) -> bool:
    """Return True for labels with a pod's UID, and with names that are single path components."""
    names = (labels.get(name, "") for name in (POD_NAME, POD_NAMESPACE, CONTAINER_NAME))
    return not component_problem(labels.get(POD_UID, "")) and not any(map(component_problem, filter(None, names)))
