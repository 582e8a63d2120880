"""Orders the pods for an eviction, for the plan that is shown and for the act. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from actors._host.node.plans import Basis
from actors.eviction import policy, ranking
from actors.eviction.thresholds import SIGNALS, DiskLayout
from proto.node.eviction import PlannedVictim
from proto.node.stats import PodUsage
from proto.pods.pod_workers import PodWorkerState
from proto.v1 import Pod


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod in its place in the order."""

    pod: Pod
    usage: PodUsage | None
    rule: str
    amount: int | None
    """Its use of the resource that is short; None when it is not known."""
    ending: bool
    """It ends already, and an eviction shortens its grace period."""

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.pod.metadata.uid

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def is_active(worker: PodWorkerState) -> bool:
    """Return True when the kubelet considers the pod (GetActivePods of pkg/kubelet/kubelet_pods.go).

    A pod that ends is one, as long as a source has it. So it goes before others that use less.
    """
    return worker.stage != "terminated" and not worker.deleted and not worker.rejected


def candidates(
    workers: Iterable[PodWorkerState],
    usages: Mapping[str, PodUsage],
    signal: str,
    layout: DiskLayout,
    passed_over: Collection[str] = (),
) -> list[Candidate]:
    """Return the active pods that may be evicted for `signal`, the first one first. `passed_over`: UIDs of others."""
    active = {one.uid: one for one in workers if is_active(one) and one.uid not in passed_over}
    found = []
    for pod in ranking.evictable((one.pod for one in active.values() if one.pod is not None), usages, signal, layout):
        usage = usages.get(pod.metadata.uid)
        amount = None if usage is None else ranking.used(usage, signal, layout)
        ending = active[pod.metadata.uid].stage == "terminating"
        found.append(Candidate(pod, usage, ranking.why(pod, usage, signal, layout), amount, ending))
    return found


def basis(found: Iterable[Candidate], signal: str, refused: Mapping[str, str], gone: str = "") -> Basis:
    """Return the facts of a plan, or of the act that evicted the pod `gone`. `refused`: UID to reason."""
    found = list(found)
    unit = SIGNALS[signal].resource
    verdicts = {
        one.uid: refused.get(one.uid, f"{one.rule}, {'unknown' if one.amount is None else one.amount} {unit}")
        for one in found
    }
    order = (gone,) if gone else tuple(one.uid for one in found)
    return Basis(order, verdicts, names={one.uid: one.name for one in found}).first()


def victims(found: Iterable[Candidate], workers: Iterable[PodWorkerState], now: float) -> tuple[PlannedVictim, ...]:
    """Return the rows of a plan."""
    started = {worker.uid: worker.start_time for worker in workers}
    return tuple(
        PlannedVictim(
            kind="pod",
            name=one.name,
            id=one.uid,
            rule=one.rule,
            age_s=max(0.0, now - (started.get(one.uid) or now)),
            bytes=one.amount,
        )
        for one in found
    )


def notes(signal: str, layout: DiskLayout) -> tuple[str, ...]:
    """Return the lines below a plan."""
    reclaim = " and ".join(policy.reclaim_steps(signal, layout))
    first = (f"unused {reclaim} are removed before a pod is evicted",) if reclaim else ()
    return (*first, "pods go one at a time, until the threshold is not met")
