import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._host.files.disk_use import DiskUse
from actors.stats import measure
from actors.stats.policy import (
    POD_FILES,
    CgroupFigures,
    ContainerFigures,
    PodDisk,
    memory_available,
    pod_disks,
    pod_usages,
)
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_UID
from proto.node.stats import ContainerUsage, PodUsage, PodUsages
from proto.pods.volume import PodVolumeUsage, VolumeUsage
from proto.wire import codec


def test_pod_cgroup_replaces_the_sum_of_its_containers() -> None:
    own = [ContainerFigures("u", "a", 10, 1, DiskUse(100, 2)), ContainerFigures("u", "b", 20, 2, DiskUse(50, 1))]
    disk = PodDisk(logs={"a": DiskUse(7, 1), "b": DiskUse(3, 1)}, volumes=DiskUse(1000, 10))
    (usage,) = pod_usages({"u": CgroupFigures(99, 9, 4)}, own, {"u": disk})
    assert usage == PodUsage(
        pod_uid="u",
        memory_working_set_bytes=99,
        cpu_usage_ns=9,
        tasks=4,
        disk_bytes=150 + 10 + 1000,
        inodes=3 + 2 + 10,
        writable_layer_bytes=150,
        writable_layer_inodes=3,
        containers=(
            ContainerUsage(name="a", memory_working_set_bytes=10, writable_layer_bytes=100, log_bytes=7),
            ContainerUsage(name="b", memory_working_set_bytes=20, writable_layer_bytes=50, log_bytes=3),
        ),
    )


def test_logs_count_for_running_containers_or_if_unknown() -> None:
    logs = {"a": DiskUse(7, 1), "init": DiskUse(1000, 5), POD_FILES: DiskUse(50, 1)}
    disk = PodDisk(logs=logs, volumes=DiskUse(30_000, 2))
    (usage,) = pod_usages({}, [ContainerFigures("u", "a")], {"u": disk})
    assert (usage.disk_bytes, usage.inodes) == (30_057, 4)
    (usage,) = pod_usages({}, [], {"u": disk})
    assert (usage.disk_bytes, usage.inodes) == (30_000, 2), "its containers have ended"
    (usage,) = pod_usages({"u": CgroupFigures(1, 1)}, None, {"u": disk})
    assert (usage.disk_bytes, usage.inodes) == (31_057, 9), "the runtime does not answer"


def stats(id_: str, name: str, layer: int, uid: str = "u", *, used: int = 0) -> pb.ContainerStats:
    labels = {POD_UID: uid, CONTAINER_NAME: name} if uid else {}
    found = pb.ContainerStats(attributes=pb.ContainerAttributes(id=id_, labels=labels))
    found.writable_layer.used_bytes.value, found.writable_layer.inodes_used.value = layer, 1
    if used:
        found.memory.working_set_bytes.value = used
    return found


@pytest.mark.parametrize("order", [1, -1])
def test_layer_of_an_ended_attempt_does_not_count(order: int) -> None:
    """containerd lists ended containers, too, in any order."""
    listed = [
        stats("new", "c", 600, used=5),
        stats("old", "c", 500),
        stats("other", "x", 9, "v"),
        stats("alien", "", 1, ""),
    ]
    found = measure.containers(listed[::order], {"new", "other", "alien", "gone"})
    mine, other = pod_usages({}, found, {})
    assert (mine.writable_layer_bytes, mine.writable_layer_inodes, other.writable_layer_bytes) == (600, 1, 9)
    assert [(one.name, one.writable_layer_bytes) for one in mine.containers] == [("c", 600)]


def test_figures_leave_out_records_of_ended_containers() -> None:
    assert set(measure.figures([stats("new", "c", 600, used=5), stats("old", "c", 500)])) == {"new"}


def test_without_a_cgroup_containers_are_summed() -> None:
    own = [ContainerFigures("b", "x", 10, 1), ContainerFigures("a", "y", 5, 2), ContainerFigures("b", "z", 1, 1)]
    usages = pod_usages({}, own, {"c": PodDisk(volumes=DiskUse(1, 1))})
    assert [(u.pod_uid, u.memory_working_set_bytes, u.cpu_usage_ns, u.disk_bytes) for u in usages] == [
        ("a", 5, 2, 0),
        ("b", 11, 2, 0),
        ("c", 0, 0, 1),
    ]


def test_sums_of_64_bit_figures_fit_into_a_message() -> None:
    most = (1 << 64) - 1
    own = [ContainerFigures("u", name, most, most, DiskUse(most, most)) for name in "ab"]
    disk = PodDisk(logs={"a": DiskUse(most, most)}, volumes=DiskUse(most, most))
    usages = pod_usages({}, own, {"u": disk})
    (usage,) = usages
    assert usage.disk_bytes == usage.writable_layer_bytes == usage.memory_working_set_bytes == (1 << 63) - 1
    assert codec.decode(codec.encode(PodUsages(time=0.0, pods=usages)), PodUsages).pods == usages
    assert DiskUse(1, most).plus(DiskUse(2, 3)) == DiskUse(3, (1 << 63) - 1)


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_available_memory_is_never_negative(capacity: int, used: int) -> None:
    assert memory_available(capacity, used) == max(0, capacity - used)


def test_only_local_volumes_count_as_the_pods_disk_use() -> None:
    volumes = (
        VolumeUsage(name="disk", used_bytes=100, inodes_used=2, local=True),
        VolumeUsage(name="memory", used_bytes=1000, inodes_used=5, local=False),
        VolumeUsage(name="config", used_bytes=10, inodes_used=1, local=True),
    )
    found = pod_disks({"u": {"c": DiskUse(1, 1)}, "v": {}}, [PodVolumeUsage(pod_uid="u", time=0.0, volumes=volumes)])
    assert set(found) == {"u", "v"}
    (usage,) = pod_usages({}, [ContainerFigures("u", "c")], {"u": found["u"]})
    assert (usage.disk_bytes, usage.inodes) == (111, 4)
    assert {one.name: one.used_bytes for one in usage.volumes} == {"disk": 100, "memory": 1000, "config": 10}
