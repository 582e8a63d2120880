"""Finds the log file of a container's present or previous run by the pod's status.

It is the current file of the run, as in the kubelet, without rotated files.
"""

from __future__ import annotations

from pathlib import Path

from proto.v1 import Container, ContainerStatus, EphemeralContainer, Pod

_PENDING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
"""The kubelet's texts for waiting reasons, in its answers about logs."""


class NoSuchContainer(LookupError):
    """The pod has no container of that name, or no such run of it. The message goes to the client."""


def container_names(pod: Pod) -> list[str]:
    """Every container of the pod: regular ones first, then init, then ephemeral."""
    groups: tuple[tuple[Container | EphemeralContainer, ...], ...] = (
        pod.spec.containers,
        pod.spec.init_containers,
        pod.spec.ephemeral_containers,
    )
    return [container.name for group in groups for container in group]


def default_container(pod: Pod) -> str:
    """The container of `kubectl logs` without -c: the annotated one, else the first regular container."""
    named = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    return named if named in container_names(pod) else pod.spec.containers[0].name


def container_status(pod: Pod, container: str) -> ContainerStatus | None:
    """The status of the pod's container; None before the first one."""
    status = pod.status
    groups = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    return next((s for group in groups for s in group if s.name == container), None)


def log_file(pod_logs_dir: str | Path, pod: Pod, container: str, *, previous: bool = False) -> Path:
    """The log of the container's current or previous run, `RESTARTCOUNT.log` in the container's directory.

    Raises NoSuchContainer when there is no such container or no such run.
    """
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if container not in container_names(pod):
        raise NoSuchContainer(
            f"cannot find container {container!r} in pod {name}; it has {', '.join(container_names(pod))}"
        )
    state = container_status(pod, container)
    directory = Path(pod_logs_dir) / f"{pod.metadata.namespace}_{pod.metadata.name}_{config_uid(pod)}" / container
    attempt = _attempt(state, previous)
    if attempt is None or attempt < 0:
        if previous:
            raise NoSuchContainer(f'previous terminated container "{container}" in pod "{pod.metadata.name}" not found')
        reason = (state.state.waiting.reason or "") if state and state.state.waiting else ""
        raise NoSuchContainer(
            f'container "{container}" in pod "{pod.metadata.name}" is waiting to start: '
            f"{_PENDING.get(reason, reason) or 'ContainerCreating'}"
        )
    return directory / f"{attempt}.log"


def config_uid(pod: Pod) -> str:
    """The UID in the names of a pod's directories: for a mirror pod that of its static pod, else its own."""
    return pod.metadata.annotations.get("kubernetes.io/config.mirror", pod.metadata.uid)


def _attempt(status: ContainerStatus | None, previous: bool) -> int | None:
    """The restart count in the file's name. While a container is in back-off it is that of the ended run."""
    if status is None:
        return None
    started = status.state.running is not None or status.state.terminated is not None
    if started:
        return status.restart_count - 1 if previous else status.restart_count
    return status.restart_count if status.last_state.terminated is not None else None


def has_ended(pod: Pod | None, container: str, attempt: int) -> bool:
    """True when the run with the log `attempt`.log is over: the pod is gone, or the container ended or restarted."""
    if pod is None:
        return True
    status = container_status(pod, container)
    if status is None:
        return False
    return status.restart_count > attempt or status.state.running is None
