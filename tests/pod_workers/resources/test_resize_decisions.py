"""Decisions on resizes: what fits, what is refused and why, and their order."""

from dataclasses import replace
from typing import Any

import pytest

from actors._cgroup.quantities.swap import SwapRules
from actors._metrics.kubelet import RESIZES_ACCEPTED_LATE
from actors.pod_workers.admission import NodeInfo, Preempt, Share
from actors.pod_workers.model.allocation import resources_of
from actors.pod_workers.resources.resizing import ManagerPolicies, NodeState, Refusal, ResizeRequest, decide, in_order
from proto.agent.settings import Taint
from proto.v1 import Pod
from tests.pod_workers.resources.resize_pods import GIB, MIB, STATIC, allocated, needs, pod, request, sized

NODE = NodeInfo("vm", {}, {"cpu": 4000, "memory": 4 * GIB, "pods": 110})


SWAPPING = SwapRules(
    "LimitedSwap", unified=True, accounting=True, memory_capacity_bytes=4 * GIB, swap_capacity_bytes=GIB
)
SWAP = Refusal("Infeasible", "In-place resize of containers with swap is not supported.", "swap_limitation")
TOO_SMALL = "insufficient_node_allocatable"
OTHER = Share.of(pod(needs("1", "1Gi"), uid="other"))


@pytest.mark.parametrize(
    ("desired", "allocated", "swap", "refusal"),
    [
        (pod(needs("3", "3Gi")), pod(needs("1", "1Gi")), SwapRules(), None),
        (
            pod(needs("3001m", "1Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal("Deferred", "Node didn't have enough resource: cpu, requested: 3001, used: 1000, capacity: 4000"),
        ),
        (
            pod(needs("1", "4Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal(
                "Deferred",
                f"Node didn't have enough resource: memory, requested: {4 * GIB}, used: {GIB}, capacity: {4 * GIB}",
            ),
        ),
        (
            pod(needs("5", "1Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal("Infeasible", "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000", TOO_SMALL),
        ),
        (
            pod(needs("5", "5Gi")),
            pod(needs("1", "1Gi")),
            SwapRules(),
            Refusal(
                "Infeasible",
                f"Node didn't have enough capacity: memory, requested: {5 * GIB}, capacity: {4 * GIB}",
                TOO_SMALL,
            ),
        ),
        (
            pod(needs("2"), meta=STATIC),
            pod(needs("1"), meta=STATIC),
            SwapRules(),
            Refusal("Infeasible", "In-place resize of static-pods is not supported", "static_pod"),
        ),
        (pod(needs("1", "2Gi")), pod(needs("1", "1Gi")), SWAPPING, SWAP),
        (pod(needs("2", "1Gi")), pod(needs("1", "1Gi")), SWAPPING, None),
        (
            pod({**needs("1", "2Gi"), "policy": ["memory"]}),
            pod({**needs("1", "1Gi"), "policy": ["memory"]}),
            SWAPPING,
            None,
        ),
    ],
)
def test_resize_decisions(desired: Pod, allocated: Pod, swap: SwapRules, refusal: Refusal | None) -> None:
    assert decide(ResizeRequest(desired, allocated), [OTHER], NodeState(NODE), swap) == refusal


@pytest.mark.parametrize(
    ("memory", "reason", "message"),
    [
        ("3000Mi", "", ""),
        (
            "4050Mi",
            "Deferred",
            f"Node didn't have enough resource: memory, requested: {4050 * MIB}, used: 0, capacity: {3996 * MIB}",
        ),
        (
            "4500Mi",
            "Infeasible",
            f"Node didn't have enough capacity: memory, requested: {4500 * MIB}, capacity: {4096 * MIB}",
        ),
    ],
)
def test_only_a_resize_beyond_reservations_is_infeasible(memory: str, reason: str, message: str) -> None:
    """The eviction threshold and huge pages may change."""
    allocatable = NODE.allocatable | {"memory": 3996 * MIB}
    node = NodeState(replace(NODE, allocatable=allocatable, enforced={"cpu": 4000, "memory": 4096 * MIB}))
    refusal = decide(ResizeRequest(pod(needs("1", memory)), pod(needs("1", "1Gi"))), [], node, SwapRules())
    found = (refusal.reason, refusal.message) if isinstance(refusal, Refusal) else ("", "")
    assert found == (reason, message)


NO_EXECUTE = (Taint(key="x", effect="NoExecute"),)


@pytest.mark.parametrize(
    ("node", "spec", "message"),
    [
        (NodeState(NODE, ("DiskPressure",)), {}, "The node had condition: [DiskPressure]. "),
        (NodeState(NODE, ("DiskPressure",)), {"priority": 2_000_000_000}, ""),
        (NodeState(NODE, ("MemoryPressure",)), {}, ""),
        (NodeState(NODE, shutting_down=True), {}, "Pod was rejected as the node is shutting down."),
        (
            NodeState(replace(NODE, taints=NO_EXECUTE)),
            {},
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        ),
        (
            NodeState(NODE),
            {"nodeSelector": {"zone": "a"}},
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
    ],
)
def test_a_resize_passes_the_checks_of_a_new_pod(node: NodeState, spec: dict[str, Any], message: str) -> None:
    desired = pod(needs("2", "1Gi"), **spec)
    refusal = decide(ResizeRequest(desired, pod(needs("1", "1Gi"))), [OTHER], node, SwapRules())
    assert refusal == (Refusal("Deferred", message) if message else None)


def test_a_critical_pod_preempts_for_its_resize() -> None:
    other = Share.of(pod(needs("3"), uid="other"))
    desired = pod(needs("2"), priority=2_000_000_000)
    verdict = decide(ResizeRequest(desired, pod(needs("1"))), [other], NodeState(NODE), SwapRules())
    assert verdict == Preempt((other,), "cpu")
    shut = NodeState(NODE, shutting_down=True)
    refusal = decide(ResizeRequest(desired, pod(needs("1"))), [other], shut, SwapRules())
    assert isinstance(refusal, Refusal), "the machine's end makes no room"


def test_static_policies_make_resizes_of_guaranteed_pods_infeasible():
    small, more_cpu, more_memory = (
        pod(needs(cpu, memory, cpu, memory)) for cpu, memory in (("1", "1Gi"), ("2", "1Gi"), ("1", "2Gi"))
    )

    def detail(desired: Pod, policies: ManagerPolicies) -> str:
        refusal = decide(ResizeRequest(desired, small), [], NodeState(NODE), SwapRules(), policies)
        return refusal.detail if isinstance(refusal, Refusal) else ""

    both = ManagerPolicies(cpus=True, memory=True)
    assert detail(more_cpu, both) == "guaranteed_pod_cpu_manager_static_policy"
    assert detail(more_memory, both) == "guaranteed_pod_memory_manager_static_policy"
    assert detail(more_memory, ManagerPolicies(cpus=True)) == detail(more_cpu, ManagerPolicies()) == ""


def test_order_of_resizes() -> None:
    requests = [
        request("new", "2"),
        request("late", "2", since=20),
        request("early", "2", since=10),
        request("guaranteed", "2", since=30, qos="Guaranteed"),
        request("important", "2", since=40, priority=100),
        request("shrinks", "500m"),
    ]
    order = [one.desired.metadata.uid for one in in_order(requests)]
    assert order == ["shrinks", "important", "guaranteed", "early", "late", "new"]


@pytest.mark.parametrize(
    ("resizes", "changed", "late", "waiting"),
    [
        # Each row: (uid, priority, before, after). Higher priorities are decided on first.
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("600m", "1Gi"))],
            ["a", "b"],
            {("pod_resized",): 1},
            set(),
        ),
        (
            [
                ("a", 9, ("1", "1Gi"), ("1400m", "1Gi")),
                ("b", 5, ("500m", "1Gi"), ("250m", "2Gi")),
                ("c", 0, ("250m", "2Gi"), ("300m", "512Mi")),
            ],
            ["a", "b", "c"],
            {("pod_resized",): 2},
            set(),
        ),
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("600m", "3Gi"))],
            ["a", "b"],
            {},
            {"a"},
        ),
        (
            [("a", 9, ("500m", "1Gi"), ("500m", "3Gi")), ("b", 0, ("500m", "3Gi"), ("500m", "1Gi"))],
            ["b", "a"],
            {},
            set(),
        ),
    ],
)
def test_pods_without_containers_free_resources_with_the_grant(
    tmp_path: Any, resizes: Any, changed: list[str], late: dict[tuple[str, ...], float], waiting: set[str]
) -> None:
    allocator, queue = allocated(tmp_path, *(sized(uid, *before, priority) for uid, priority, before, _ in resizes))
    desired = {uid: sized(uid, *after, priority) for uid, priority, _, after in resizes}
    for one in desired.values():
        allocator.enqueue(one)
    RESIZES_ACCEPTED_LATE.replace(())
    assert allocator.retry_pending_resizes(desired, desired, queue.admission_queue, "pod_updated") == changed
    assert {labels: numbers[0] for labels, numbers in RESIZES_ACCEPTED_LATE.take().items()} == late
    assert allocator.pending_resizes == allocator.pending.keys() == waiting
    for uid, one in desired.items():
        assert (allocator.allocated.get(uid) == resources_of(one)) == (uid not in waiting)
