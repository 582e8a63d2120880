"""Counts events of pod workers for /metrics, under the kubelet's names. One function per event."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from actors._host.node.critical import is_static
from actors._metrics import kubelet as metrics
from actors.pod_workers.model.allocation import containers_of
from actors.pod_workers.model.restart_policy import is_sidecar
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import ContainerView, PodView
from proto.cri.labels import CONFIG_SEEN
from proto.v1 import Pod
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import QuantityError, parse


def bool_label(value: bool) -> str:
    """A boolean as a label of a metric."""
    return "true" if value else "false"


def static_label(pod: Pod) -> str:
    """The kubelet's label `static`: true, or empty for a pod of the API server."""
    return "true" if is_static(pod) else ""


def _seen_s_ago(pod: Pod) -> float | None:
    """Seconds since a source first had the pod; None without such an annotation."""
    try:
        return max(0.0, time.time() - datetime.fromisoformat(pod.metadata.annotations.get(CONFIG_SEEN, "")).timestamp())
    except ValueError:
        return None


def worker_started(pod: Pod, view: PodView | None, termination: TerminationRequest | None) -> None:
    """A worker begins for an admitted pod, for an orphan, or for a pod that runs already."""
    if termination is not None:
        if termination.deleted:
            metrics.ORPHANED_RUNTIME_PODS.inc()
        return
    if view is None or view.sandboxes:
        return
    metrics.CONTAINERS_PER_POD.observe(len(pod.spec.containers))
    waited_s = _seen_s_ago(pod)
    if waited_s is not None:
        metrics.POD_WORKER_START_SECONDS.observe(waited_s)


def pod_wanted_again(pod: Pod) -> None:
    """A pod is wanted again under its UID while it ends."""
    metrics.RESTARTED_PODS.inc(static_label(pod))


def step_done(kind: str, began: float) -> None:
    """A worker's step that began at this monotonic time: create, sync, update or kill."""
    metrics.POD_WORKER_SECONDS.observe(time.monotonic() - began, kind)


def phase_published(pod: Pod, before: str | None, now: str | None) -> bool:
    """A pod's phase was published. True: it is the first Running, which ends the pod's start."""
    if (before, now) != ("Pending", "Running"):
        return False
    took_s = _seen_s_ago(pod)
    if took_s is not None:
        metrics.POD_START_SECONDS.observe(took_s)
    return True


def init_seconds(pod: Pod, view: PodView) -> float:
    """Seconds that the pod's init containers ran, without sidecars."""
    names = {one.name for one in pod.spec.init_containers if not is_sidecar(one)}
    ended = [one for one in view.containers if one.name in names and one.state == "exited"]
    return sum(max(0, one.finished_at_ns - one.started_at_ns) for one in ended) / 1e9


def resizes_requested(before: Pod, after: Pod) -> None:
    """A pod's source wants other resources for its containers."""
    wanted = {one.name: one.resources for one in containers_of(after)}
    for container in containers_of(before):
        was, now = container.resources, wanted.get(container.name, container.resources)
        for kind, old, new in (("requests", was.requests, now.requests), ("limits", was.limits, now.limits)):
            for resource in ("cpu", "memory"):
                operation = _operation(old.get(resource, 0), new.get(resource, 0))
                if operation:
                    metrics.RESIZES_REQUESTED.inc(resource, kind, operation)


def _operation(before: Quantity, after: Quantity) -> str:
    try:
        old, new = parse(before), parse(after)
    except QuantityError:
        return ""  # the resize is refused for it
    if old == new:
        return ""
    if not old or not new:
        return "remove" if old else "add"
    return "increase" if new > old else "decrease"


@contextmanager
def resize() -> Iterator[None]:
    """Times a resize; every exception counts as a failure."""
    began, success = time.monotonic(), False
    try:
        yield
        success = True
    finally:
        metrics.RESIZE_MILLISECONDS.observe((time.monotonic() - began) * 1000, bool_label(success))


def pod_starting(pod: Pod) -> None:
    """A step begins to start the pod in a new sandbox (SyncPod in pkg/kubelet/kuberuntime)."""
    metrics.STARTED_PODS.inc()
    if pod.spec.host_users is False:
        metrics.STARTED_USERNS_PODS.inc()


def pod_start_failed(pod: Pod) -> None:
    """A failure in that step. User namespaces often fail at a container, not at the sandbox."""
    if pod.spec.host_users is False:
        metrics.STARTED_USERNS_PODS_ERRORS.inc()


@contextmanager
def sandbox_creation() -> Iterator[None]:
    """Counts an error of the sandbox: of its runtime class, its configuration, its cgroup or the runtime's call."""
    try:
        yield
    except Exception:
        metrics.STARTED_PODS_ERRORS.inc()
        raise


@contextmanager
def sandbox_call(handler: str) -> Iterator[None]:
    """Times RunPodSandbox; every exception counts as an error."""
    began = time.monotonic()
    try:
        yield
    except Exception:
        metrics.SANDBOX_ERRORS.inc(handler)
        raise
    finally:
        metrics.SANDBOX_SECONDS.observe(time.monotonic() - began, handler)


def container_type(pod: Pod, name: str) -> str:
    """The kubelet's label: init_container, ephemeral_container or container."""
    if any(container.name == name for container in pod.spec.init_containers):
        return "init_container"
    if any(container.name == name for container in pod.spec.ephemeral_containers):
        return "ephemeral_container"
    return "container"


def container_starting(pod: Pod, name: str) -> None:
    """A start begins, before the pull of the image."""
    metrics.STARTED_CONTAINERS.inc(container_type(pod, name))


def container_failed(pod: Pod, name: str, reason: str) -> None:
    """A container could not be started."""
    metrics.STARTED_CONTAINERS_ERRORS.inc(container_type(pod, name), reason)


def container_ended(pod: Pod, found: ContainerView) -> None:
    """A container has ended."""
    metrics.TERMINATED_CONTAINERS.inc(container_type(pod, found.name), str(found.exit_code), found.reason)
