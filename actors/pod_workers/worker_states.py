"""Reports the pod workers to peers (PodWorkerState), to the command line (describe) and to /metrics (gauges)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Any, get_args

from msgspec.structs import replace

from actors._base import MailboxActor
from actors._base.messaging.waits import Standing, Subject
from actors._host.node.critical import is_static
from actors._metrics import kubelet as metrics
from actors.pod_workers.model import reasons
from actors.pod_workers.model.desired import Desired, full_name
from actors.pod_workers.model.metrics import static_label
from actors.pod_workers.model.orphans import is_rebuilt
from actors.pod_workers.resources.resize_conditions import Pending
from actors.pod_workers.worker import PodWorker, Stage
from proto.pods.pod_workers import PodWorkerState
from proto.v1 import Pod

LOOK_S, LOOK_AGAIN_S = 0.1, 2.0
STATIC = ("", "true")
"""Values of the label `static`."""
RUNTIME_ONLY = ("runtime_only", "unknown")
"""`config` and `static` of a pod whose object was rebuilt from the runtime."""
WORKING = tuple(
    (lifecycle, *kind)
    for lifecycle in get_args(Stage)
    for kind in (*product(("desired", "orphan"), STATIC), RUNTIME_ONLY)
)
"""Labels of kubelet_working_pods. As with the kubelet, each series is always there."""


def states(
    workers: Mapping[str, PodWorker], published: Mapping[str, Pod], uids: Collection[str] = (), *, with_pods: bool
) -> tuple[PodWorkerState, ...]:
    """Of all workers, or of those in `uids`. `published`: pod UID to the pod with its published status."""
    wanted = {uid: workers[uid] for uid in uids if uid in workers} if uids else workers
    return tuple(_state(worker, published.get(uid), with_pod=with_pods) for uid, worker in wanted.items())


def described(workers: Iterable[PodWorker]) -> dict[str, Any]:
    """NAMESPACE/NAME of a pod to the description of its worker."""
    return {f"{worker.pod.metadata.namespace}/{worker.pod.metadata.name}": worker.describe() for worker in workers}


def not_begun(
    desired: Desired,
    workers: Mapping[str, PodWorker],
    waiting: Mapping[str, list[str]],
    may_decide: Callable[[str], bool],
    for_runtime: str,
    for_resources: Mapping[str, str],
) -> dict[str, str]:
    """NAMESPACE/NAME of each wanted pod without a worker to the reason.

    `waiting`: UIDs that wait for another pod of their full name. `may_decide`: see AdmissionCallbacks. `for_runtime`:
    why all wait for the runtime; empty once it is seen. `for_resources`: UID to what the pod waits for.
    """
    for_name = {uid for uids in waiting.values() for uid in uids}
    found = {}
    for uid, pod in desired.pods.items():
        if uid not in workers:
            why = "it waits for others to be admitted, or for pods that end to make room for it"
            if for_runtime:
                why = f"it waits for the container runtime: {for_runtime}"
            elif uid in for_name:
                why = "it waits for the pod that had its name before to be gone"
            elif uid in for_resources:
                why = f"it waits for its resources: {for_resources[uid]}"
            elif not may_decide(uid):
                why = "it waits for the API server, which has not answered yet"
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = why
    return found


class NotBegun:
    """Records the wanted pods without a worker as waits. It looks soon after a change, and while there are some."""

    def __init__(self, actor: MailboxActor, find: Callable[[], Mapping[str, str]]) -> None:
        """`find`: NAMESPACE/NAME to the reason."""
        self._actor, self._find = actor, find
        self._standing = Standing()
        self._is_due = False

    def changed(self) -> None:
        """Look soon."""
        self._look_in(LOOK_S)

    def _look_in(self, delay_s: float) -> None:
        if not self._is_due:
            self._is_due = True
            self._actor.after(delay_s, self._look)

    def _look(self) -> None:
        self._is_due = False
        found = self._find()
        for name, why in found.items():
            self._standing.put(name, Subject(f"pod/{name}"), "admission", why)
        self._standing.keep(set(found))
        if found:
            self._look_in(LOOK_AGAIN_S)


def set_gauges(workers: Mapping[str, PodWorker], desired: Desired, pending: Mapping[str, Pending]) -> None:
    """Set the kubelet's gauges of pods (HandlePodCleanups in pkg/kubelet/kubelet_pods.go).

    The kubelet has no worker for a pod that it rejects. It has one for a static pod that waits for its predecessor.
    """
    known = {uid: worker for uid, worker in workers.items() if not _is_only_rejected(worker)}
    working = Counter((worker.stage, *_kind(worker.pod, uid in desired.pods)) for uid, worker in known.items())
    active = Counter(
        static_label(worker.pod)
        for uid, worker in known.items()
        if uid in desired.pods and worker.stage != "terminated"
    )
    waiting = _waiting_for_name(workers, desired)
    working["sync", "desired", "true"] += waiting
    active["true"] += waiting
    wanted = Counter(map(static_label, desired.pods.values()))
    metrics.WORKING_PODS.replace((labels, working[labels]) for labels in WORKING)
    metrics.ACTIVE_PODS.replace(((static,), active[static]) for static in STATIC)
    metrics.DESIRED_PODS.replace(((static,), wanted[static]) for static in STATIC)
    for static in STATIC:
        metrics.RESTARTED_PODS.inc(static, by=0)  # the series are there before the first restart
    metrics.EPHEMERAL_CONTAINERS.set(sum(len(worker.pod.spec.ephemeral_containers) for worker in workers.values()))
    refused = Counter(one.reason.lower() for one in pending.values() if one.reason)
    metrics.RESIZES_PENDING.replace(((reason,), count) for reason, count in refused.items())
    metrics.RESIZES_IN_PROGRESS.set(sum(worker.resizer.progress is not None for worker in workers.values()))


def _is_only_rejected(worker: PodWorker) -> bool:
    """Return True for a rejected pod of which nothing was there, unless it is being deleted."""
    if worker.runtime.view.sandboxes or worker.pod.metadata.deletion_timestamp is not None:
        return False
    termination = worker.termination
    return termination is not None and not termination.deleted and termination.message.startswith(reasons.REJECTED)


def _waiting_for_name(workers: Mapping[str, PodWorker], desired: Desired) -> int:
    """Number of static pods that wait until another one of their full name is gone."""
    names = {full_name(worker.pod) for worker in workers.values()}
    waiting = (pod for uid, pod in desired.pods.items() if uid not in workers)
    return sum(is_static(pod) and full_name(pod) in names for pod in waiting)


def _kind(pod: Pod, desired: bool) -> tuple[str, str]:
    """The labels `config` and `static` of a pod with a worker."""
    if not desired and is_rebuilt(pod):
        return RUNTIME_ONLY
    return "desired" if desired else "orphan", static_label(pod)


def _state(worker: PodWorker, published: Pod | None, *, with_pod: bool) -> PodWorkerState:
    """The pod in it has the allocated resources, which are its limits; the published one has the desired ones."""
    pod, termination = worker.pod, worker.termination
    if with_pod and published is not None:
        pod = replace(pod, status=published.status)
    return PodWorkerState(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        stage=worker.stage,
        released=worker.stage == "terminated" and worker.report.released,
        deleted=termination is not None and termination.deleted,
        rejected=termination is not None and termination.message.startswith(reasons.REJECTED),
        evicted=_was_evicted(worker),
        static=is_static(pod),
        pod=pod if with_pod else None,
        start_time=worker.report.start_time,
    )


def _was_evicted(worker: PodWorker) -> bool:
    """By its request or, after the loss of the checkpoint, by its status. A rejected pod has the same reason."""
    if worker.termination is None:
        return False
    reason, message = worker.termination.reason, worker.termination.message
    if not reason:
        status = worker.report.last or worker.pod.status
        reason, message = status.reason or "", status.message or ""
    return reason in reasons.EVICTIONS and not message.startswith(reasons.REJECTED)
