"""What the pod workers count for /metrics, in the kubelet's terms; a place each, called where it happens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from actors._base import Actor
from actors._cgroup.quantities.critical import is_static
from actors._metrics import kubelet as metrics
from actors.pod_workers.model.labels import CONFIG_SEEN
from actors.pod_workers.model.termination_request import TerminationRequest
from actors.pod_workers.model.view import ContainerView, PodView
from proto.v1 import Pod

if TYPE_CHECKING:
    from actors.pod_workers.model.desired import Desired
    from actors.pod_workers.worker import PodWorker


class CountedWorkers(Actor):
    """The part of the actor that says how many pods there are, when somebody asks."""

    workers: dict[str, PodWorker]
    desired: Desired

    def measure(self) -> None:
        """Set the gauges of pods."""
        working: Counter[tuple[str, str, str]] = Counter()
        active: Counter[str] = Counter(true=0, false=0)
        for uid, worker in self.workers.items():
            static = _word(is_static(worker.pod))
            working[worker.stage, "desired" if uid in self.desired.pods else "orphan", static] += 1
            active[static] += worker.stage == "sync"
        wanted = Counter(_word(is_static(pod)) for pod in self.desired.pods.values())
        metrics.WORKING_PODS.replace(working.items())
        metrics.ACTIVE_PODS.replace(((static,), count) for static, count in active.items())
        metrics.DESIRED_PODS.replace(((static,), wanted[static]) for static in ("true", "false"))
        mirrored = wanted["true"] if self.settings.kubeconfig else 0
        metrics.MIRROR_PODS.set(mirrored)
        pods = [worker.pod for worker in self.workers.values()]
        metrics.EPHEMERAL_CONTAINERS.set(sum(len(pod.spec.ephemeral_containers) for pod in pods))
        metrics.RESIZES_IN_PROGRESS.set(sum(worker.resizer.progress is not None for worker in self.workers.values()))


def _word(value: bool) -> str:
    return "true" if value else "false"


def _seen_s_ago(pod: Pod) -> float | None:
    """How long ago its source first had it; None when that is not known."""
    try:
        return max(0.0, time.time() - datetime.fromisoformat(pod.metadata.annotations.get(CONFIG_SEEN, "")).timestamp())
    except ValueError:
        return None


def worker_started(pod: Pod, view: PodView | None, termination: TerminationRequest | None) -> None:
    """A worker begins: of a pod that was let in, of one that nobody wants, or of one that runs already."""
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
    metrics.RESTARTED_PODS.inc(_word(is_static(pod)))


def round_done(kind: str, began: float) -> None:
    """A worker's step that began at this monotonic time: create, sync, update or kill."""
    metrics.POD_WORKER_SECONDS.observe(time.monotonic() - began, kind)


def phase_published(pod: Pod, before: str | None, now: str | None) -> None:
    """A pod's phase; the first Running is what its start ends with."""
    took_s = _seen_s_ago(pod) if (before, now) == ("Pending", "Running") else None
    if took_s is not None:
        metrics.POD_START_SECONDS.observe(took_s)


@contextmanager
def sandbox_start(pod: Pod, handler: str) -> Iterator[None]:
    """Around the making of a sandbox; whatever comes out of it is an error."""
    own_users = pod.spec.host_users is False
    metrics.STARTED_PODS.inc()
    if own_users:
        metrics.STARTED_USERNS_PODS.inc()
    began = time.monotonic()
    try:
        yield
    except Exception:
        metrics.STARTED_PODS_ERRORS.inc()
        if own_users:
            metrics.STARTED_USERNS_PODS_ERRORS.inc()
        raise
    finally:
        metrics.SANDBOX_SECONDS.observe(time.monotonic() - began, handler)


def container_type(pod: Pod, name: str) -> str:
    """As the kubelet's labels have it."""
    if any(container.name == name for container in pod.spec.init_containers):
        return "init_container"
    if any(container.name == name for container in pod.spec.ephemeral_containers):
        return "ephemeral_container"
    return "container"


def container_starting(pod: Pod, name: str) -> None:
    """The runtime is asked for a container."""
    metrics.STARTED_CONTAINERS.inc(container_type(pod, name))


def container_failed(pod: Pod, name: str, reason: str) -> None:
    """A container could not be started."""
    metrics.STARTED_CONTAINERS_ERRORS.inc(container_type(pod, name), reason)


def container_ended(pod: Pod | None, found: ContainerView) -> None:
    """A container that was seen running has ended."""
    kind = container_type(pod, found.name) if pod is not None else "container"
    metrics.TERMINATED_CONTAINERS.inc(kind, str(found.exit_code), found.reason)
