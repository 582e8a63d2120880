"""How the actor tells others of its workers: one row each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from actors._cgroup.quantities.critical import is_static
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.worker import PodWorker
from proto.pods.pod_workers import PodWorkerState
from proto.v1 import Pod


def rows(
    workers: Mapping[str, PodWorker], published: Mapping[str, Pod], uids: Collection[str] = (), *, with_pods: bool
) -> tuple[PodWorkerState, ...]:
    """Of all workers, or those of `uids`; `published` are the pods as status has them."""
    wanted = {uid: workers[uid] for uid in uids if uid in workers} if uids else workers
    return tuple(_row(worker, published.get(uid), with_pod=with_pods) for uid, worker in wanted.items())


def described(workers: Iterable[PodWorker]) -> dict[str, Any]:
    """What each is doing, by NAMESPACE/NAME."""
    return {f"{worker.pod.metadata.namespace}/{worker.pod.metadata.name}": worker.describe() for worker in workers}


def not_begun(
    desired: Desired,
    workers: Mapping[str, PodWorker],
    waiting: Mapping[str, list[str]],
    may_judge: Callable[[str], bool],
    runtime_seen: bool,
) -> dict[str, str]:
    """Wanted pods that nothing has been published of, by NAMESPACE/NAME, and why that is. `may_judge`: whether all is
    known that a pod's admission goes by."""
    for_name = {uid for uids in waiting.values() for uid in uids}
    found = {}
    for uid, pod in desired.pods.items():
        if uid not in workers:
            why = "it waits for others to be admitted, or for pods that end to make room for it"
            if not runtime_seen:
                why = "it waits for the container runtime, which does not answer"
            elif uid in for_name:
                why = "it waits for the pod that had its name before to be gone"
            elif not may_judge(uid):
                why = "it waits for the API server, which has not answered yet"
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = why
    return found


def _row(worker: PodWorker, published: Pod | None, *, with_pod: bool) -> PodWorkerState:
    """The published pod has the resources its source wants; the row's has those allocated to it, which are what it may
    be held to."""
    pod = worker.pod
    if with_pod and published is not None:
        pod = replace(pod, status=published.status)
    return PodWorkerState(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        stage=worker.stage,
        deleted=worker.termination is not None and worker.termination.deleted,
        static=is_static(pod),
        pod=pod if with_pod else None,
        start_time=worker.report.start_time,
    )
