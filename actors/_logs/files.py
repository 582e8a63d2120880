"""Which file: of a container's present run, or of the one before, by what the pod's status says.

Only the current file of a run is meant, as in the kubelet: what rotation has moved away is not.
"""

from __future__ import annotations

from pathlib import Path

from proto.v1 import Container, ContainerStatus, EphemeralContainer, Pod

_PENDING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
"""Reasons to wait, as the kubelet tells them to who asks for a log."""


class NoSuchContainer(LookupError):
    """The pod has no container of that name, or it never ran. The message is for people."""


def container_names(pod: Pod) -> list[str]:
    """Every container of the pod: regular ones first, then init, then ephemeral."""
    groups: tuple[tuple[Container | EphemeralContainer, ...], ...] = (
        pod.spec.containers,
        pod.spec.init_containers,
        pod.spec.ephemeral_containers,
    )
    return [container.name for group in groups for container in group]


def default_container(pod: Pod) -> str:
    """The one `kubectl logs` takes without -c: the annotated one, else the first regular one."""
    named = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    return named if named in container_names(pod) else pod.spec.containers[0].name


def container_status(pod: Pod, container: str) -> ContainerStatus | None:
    """What the node says of a container of the pod; None before it says anything."""
    status = pod.status
    groups = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    return next((s for group in groups for s in group if s.name == container), None)


def log_file(pod_logs_dir: str | Path, pod: Pod, container: str, *, previous: bool = False) -> Path:
    """The log of the container's current run, or of the one before; `RESTARTCOUNT.log` in the container's directory.

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
    """The UID in a pod's directories: its own; for a mirror pod that of the static pod behind it."""
    return pod.metadata.annotations.get("kubernetes.io/config.mirror", pod.metadata.uid)


def _attempt(status: ContainerStatus | None, previous: bool) -> int | None:
    """The restart count in the file's name. While a container waits (back-off) it is that of the run that ended."""
    if status is None:
        return None
    started = status.state.running is not None or status.state.terminated is not None
    if started:
        return status.restart_count - 1 if previous else status.restart_count
    return status.restart_count if status.last_state.terminated is not None else None


def has_ended(pod: Pod | None, container: str, attempt: int) -> bool:
    """True when the run whose log is `attempt`.log is over: the pod is gone, the container ended or is in a later run."""
    if pod is None:
        return True
    status = container_status(pod, container)
    if status is None:
        return False
    return status.restart_count > attempt or status.state.running is None
