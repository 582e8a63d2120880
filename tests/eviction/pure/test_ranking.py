from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.eviction.message import binary_si, decimal_si, eviction_message
from actors.eviction.policy import Observation
from actors.eviction.ranking import ranked, used
from actors.eviction.thresholds import Threshold
from proto.node.stats import ContainerUsage, PodUsage
from proto.v1 import Pod
from proto.v1.scalars.quantity import canonical, value

MIB = 1 << 20


def pod(uid: str, request: Any = None, priority: int | None = None, resource: str = "memory") -> Pod:
    requests = {} if request is None else {resource: request}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}], "priority": priority}
    return msgspec.convert({"metadata": {"uid": uid, "name": f"pod-{uid}"}, "spec": spec}, Pod)


def usage(uid: str, memory: int = 0, **more: Any) -> PodUsage:
    return PodUsage(pod_uid=uid, memory_working_set_bytes=memory, **{"disk_bytes": 0} | more)


def order(pods: list[Pod], usages: list[PodUsage], signal: str = "memory.available", **more: Any) -> str:
    by_uid = {one.pod_uid: one for one in usages}
    result = ranked(pods, by_uid, signal, **{"layout": "one disk"} | more)
    return "".join(one.metadata.uid for one in result)


def test_rank_is_above_request_then_priority_then_amount() -> None:
    pods = [
        pod("a", "100Mi"),  # within its request, though it uses most
        pod("b", None, 1000),  # BestEffort, important
        pod("c", "10Mi", 0),  # 20 above
        pod("d", None, 0),  # 25 above
        pod("e", "100Mi", -5),  # within its request, least important
    ]
    usages = [usage(uid, mib * MIB) for uid, mib in zip("abcde", (90, 80, 30, 25, 1), strict=True)]
    assert order(pods, usages) == "dcbea"


def test_pod_without_known_usage_goes_first() -> None:
    assert order([pod("a"), pod("b")], [usage("a", MIB)]) == "ba"


def test_disk_by_the_disk_that_is_short() -> None:
    pods = [pod("a", "1Mi", resource="ephemeral-storage"), pod("b")]
    usages = [
        usage("a", disk_bytes=12 * MIB, writable_layer_bytes=MIB, inodes=5, writable_layer_inodes=5),
        usage("b", disk_bytes=10 * MIB, writable_layer_bytes=9 * MIB, inodes=4),
    ]
    assert order(pods, usages, "nodefs.available") == "ab"
    assert order(pods, usages, "imagefs.available", layout="images apart") == "ba"
    assert order(pods, usages, "nodefs.available", layout="images apart") == "ab"
    assert order(pods, usages, "containerfs.available", layout="images apart") == "ba"
    assert order(pods, usages, "containerfs.available", layout="split") == "ab", "with logs and volumes, as upstream"
    assert order(pods, usages, "nodefs.available", layout="split") == "ab"
    assert used(usages[1], "imagefs.available", "split") == 0, "pods have nothing on a disk of images"
    assert order(pods, usages, "nodefs.inodesFree") == "ab"
    assert order(pods, usages, "nodefs.inodesFree", layout="images apart") == "ba"
    assert used(usages[0], "nodefs.available", layout="images apart") == 11 * MIB


def test_processes_by_priority_then_unknown_then_most_tasks() -> None:
    pods = [pod("a", priority=5), pod("b", priority=1), pod("c", priority=1), pod("d", priority=1)]
    usages = [usage("a", tasks=900), usage("b", MIB, tasks=3), usage("c", tasks=40)]
    assert order(pods, usages, "pid.available") == "dcba"


PODS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(-3, 3), st.integers(0, 100), st.integers(0, 100)),
    unique_by=lambda p: p[0],
)


@given(PODS)
def test_pods_above_their_request_rank_first_and_none_is_lost(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    pods = [pod(str(uid), request, priority) for uid, priority, request, _ in drawn]
    usages = {str(uid): usage(str(uid), taken) for uid, _, _, taken in drawn}
    result = ranked(pods, usages, "memory.available", layout="one disk")
    assert sorted(one.metadata.uid for one in result) == sorted(usages)
    request = {str(uid): request for uid, _, request, _ in drawn}
    above = [usages[p.metadata.uid].memory_working_set_bytes > request[p.metadata.uid] for p in result]
    assert above == sorted(above, reverse=True)


@pytest.mark.parametrize(
    ("number", "binary", "decimal"),
    [
        (0, "0", "0"),
        (1000, "1k", "1k"),
        (1024, "1Ki", "1024"),
        (1536, "1536", "1536"),
        (100 * MIB, "100Mi", "104857600"),
        (85_324 * 1024, "85324Ki", "87371776"),
        (3 << 60, "3Ei", "3458764513820540928"),
        (120_000, "120000", "120k"),
    ],
)
def test_quantities_are_printed_as_kubernetes_prints_them(number: int, binary: str, decimal: str) -> None:
    assert (binary_si(number), decimal_si(number)) == (binary, decimal)


@given(st.integers(-(2**60), 2**60))
def test_printed_quantity_is_the_same_number(number: int) -> None:
    assert value(binary_si(number)) == value(decimal_si(number)) == number


@pytest.mark.parametrize(
    ("written", "printed"),
    [("16Mi", "16Mi"), ("1024Mi", "1Gi"), ("1000k", "1M"), (0, "0"), ("0.5Gi", "512Mi"), ("100m", "100m")],
)
def test_canonical_quantities(written: Any, printed: str) -> None:
    assert canonical(written) == printed


def test_the_kubelets_message_for_memory() -> None:
    use = usage(
        "a",
        50 * MIB,
        containers=(
            ContainerUsage(name="c", memory_working_set_bytes=20 * MIB),
            ContainerUsage(name="gone", memory_working_set_bytes=90 * MIB),
        ),
    )
    threshold = Threshold("memory.available", amount=100 * MIB)
    text, _ = eviction_message(threshold, "100Mi", Observation(85_324 * 1024, 1 << 34), pod("a", "16Mi"), use)
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 85324Ki. "
        "Container c was using 20Mi, request is 16Mi, has larger consumption of memory. "
    )
    within, _ = eviction_message(threshold, "100Mi", Observation(0, 1), pod("a", "20Mi"), use)
    assert within == "The node was low on resource: memory. Threshold quantity: 100Mi, available: 0. "


def test_the_kubelets_message_for_disk_and_inodes() -> None:
    use = usage("a", containers=(ContainerUsage(name="c", writable_layer_bytes=4096, log_bytes=1024),))
    low = Threshold("nodefs.available", percent=10.0)
    disk, _ = eviction_message(low, "10%", Observation(99, 40960), pod("a"), use)
    assert disk == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 4Ki, available: 99. "
        "Container c was using 5Ki, request is 0, has larger consumption of ephemeral-storage. "
    )
    few = Threshold("nodefs.inodesFree", amount=5000)
    inodes, _ = eviction_message(few, "5k", Observation(3000, 9), pod("a"), use)
    assert inodes == "The node was low on resource: inodes. Threshold quantity: 5k, available: 3k. "


def test_a_pod_with_a_request_of_its_own_is_named() -> None:
    subject = msgspec.convert(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c"}], "resources": {"requests": {"memory": "1Gi"}}},
        },
        Pod,
    )
    text, _ = eviction_message(
        Threshold("memory.available", amount=1), "1", Observation(0, 1), subject, usage("a", 2 << 30)
    )
    assert text.endswith("Pod p was using 2Gi, request is 1Gi, has larger consumption of memory. ")
