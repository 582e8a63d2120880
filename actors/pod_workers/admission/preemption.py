"""Chooses the pods to evict so that a critical pod can be admitted. Pure.

Source: pkg/kubelet/preemption and
https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actors._cgroup.names import QOS_CLASSES
from actors._host.node.critical import is_critical
from actors.pod_workers.admission.resources import Share, Shortage
from proto.v1 import Pod


class NoPodsToPreempt(Exception):
    """Evicting every preemptable pod would not free enough; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Need:
    """An amount of a resource to free."""

    resource: str
    quantity: int


def preemptable(preemptor: Pod, other: Pod) -> bool:
    """True if `preemptor` alone is critical, or if both have a priority and its own is higher."""
    if is_critical(preemptor) and not is_critical(other):
        return True
    mine, its = preemptor.spec.priority, other.spec.priority
    return mine is not None and its is not None and mine > its


def victims(preemptor: Pod, others: Iterable[Share], shortages: Iterable[Shortage]) -> list[Share]:
    """The pods to evict, BestEffort ones first. Raises NobodyToPreempt.

    As few as possible, and the cheapest. No Guaranteed pod is evicted if all Burstable and BestEffort pods are enough,
    and no Burstable pod if all BestEffort pods are.
    """
    needs = [Need(one.resource, one.missing) for one in shortages]
    by_class: dict[str, list[Share]] = {qos: [] for qos in QOS_CLASSES}
    for share in others:
        if preemptable(preemptor, share.pod):
            by_class[share.qos].append(share)
    guaranteed, burstable, best_effort = (by_class[qos] for qos in QOS_CLASSES)
    left = remaining(needs, (*best_effort, *burstable, *guaranteed))
    if left:
        raise NoPodsToPreempt(_shortfall(left))
    from_guaranteed = _nearest(guaranteed, remaining(needs, (*best_effort, *burstable)))
    from_burstable = _nearest(burstable, remaining(needs, (*best_effort, *from_guaranteed)))
    from_best_effort = _nearest(best_effort, remaining(needs, (*from_burstable, *from_guaranteed)))
    return [*from_best_effort, *from_burstable, *from_guaranteed]


def remaining(needs: Iterable[Need], evicted: Sequence[Share]) -> list[Need]:
    """The needs that are left after these evictions."""
    left = (Need(one.resource, one.quantity - sum(freed(share, one.resource) for share in evicted)) for one in needs)
    return [need for need in left if need.quantity > 0]


def freed(share: Share, resource: str) -> int:
    """The amount that evicting the pod frees; it counts as one of the resource `pods`."""
    return 1 if resource == "pods" else share.held.get(resource, 0)


def _nearest(candidates: Iterable[Share], needs: list[Need]) -> list[Share]:
    """Repeatedly take the pod that covers most of the needs; among equals the one with smaller requests."""
    pool, chosen = list(candidates), list[Share]()
    while needs:
        if not pool:
            raise NoPodsToPreempt(_shortfall(needs))
        best = min(reversed(range(len(pool))), key=lambda index: (_distance(needs, pool[index]), _size(pool[index])))
        chosen.append(pool[best])
        needs = remaining(needs, [pool[best]])
        pool[best] = pool[-1]
        pool.pop()
    return chosen


def _distance(needs: Iterable[Need], share: Share) -> float:
    """Sum of the squared uncovered fraction of each need, so that all needs weigh the same."""
    parts = ((max(0, need.quantity - freed(share, need.resource)) / need.quantity) for need in needs)
    return sum(part**2 for part in parts)


def _size(share: Share) -> tuple[int, int]:
    return share.held.get("memory", 0), share.held.get("cpu", 0)


def _shortfall(needs: Iterable[Need]) -> str:
    text = "".join(f"(res: {need.resource}, q: {need.quantity}), " for need in needs)
    return f"no set of running pods found to reclaim resources: [{text}]"
