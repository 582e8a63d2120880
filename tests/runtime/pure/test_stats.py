"""CRI's statistics from the figures of a cgroup."""

from actors._cgroup.figures import Figures, Pressure, Stalls
from actors._cgroup.transfers import Transfers
from actors.runtime.stats import metrics
from actors.runtime.stats.stats import fill
from proto.cri import api_pb2 as pb


def test_pressure_of_cgroup_v2_is_in_the_statistics() -> None:
    stats, some = pb.ContainerStats(), Pressure(1.5, 0.5, 0.25, 1000)
    used = Figures(time=5.0, cpu_ns=7, memory_bytes=90, working_set_bytes=60, rss_bytes=50, page_faults=4)
    used.cpu_stalls, used.memory_stalls, used.io_stalls = (Stalls(some, Pressure(total_us=n)) for n in (1, 2, 3))
    fill(stats, used, 100)
    assert stats.memory.available_bytes.value == 40
    assert (stats.memory.rss_bytes.value, stats.memory.page_faults.value) == (50, 4)
    assert stats.cpu.psi.Some == pb.PsiData(Total=1000, Avg10=1.5, Avg60=0.5, Avg300=0.25)
    assert [one.psi.Full.Total for one in (stats.cpu, stats.memory, stats.io)] == [1, 2, 3]
    assert stats.io.timestamp == stats.cpu.timestamp == 5_000_000_000


def test_without_pressure_there_are_no_statistics_of_io() -> None:
    stats = pb.ContainerStats()
    fill(stats, Figures(time=5.0, cpu_ns=7), 0)
    assert not stats.HasField("io")
    assert not stats.cpu.HasField("psi")
    assert not stats.memory.HasField("available_bytes")


def values(facts: metrics.Measurements, *names: str) -> dict[tuple[str, ...], int]:
    """Values by name and the metric's own labels."""
    found = metrics.samples(metrics.CONTAINER, facts, [""] * len(metrics.LABELS), 1)
    return {(one.name, *one.label_values[len(metrics.LABELS) :]): one.value.value for one in found if one.name in names}


def test_metrics_have_the_transfers_of_each_disk() -> None:
    disk = Transfers(8, 16, {"Read": 5, "Write": 6}, {"Read": 1, "Write": 2})
    fs = [f"container_fs_{name}_total" for name in ("reads", "reads_bytes", "writes", "writes_bytes")]
    blkio = "container_blkio_device_usage_total"
    assert values(metrics.Measurements(transfers={"/dev/sdb": disk}), *fs, blkio) == {
        (fs[0], "/dev/sdb"): 1,
        (fs[1], "/dev/sdb"): 5,
        (fs[2], "/dev/sdb"): 2,
        (fs[3], "/dev/sdb"): 6,
        (blkio, "/dev/sdb", "8", "16", "Read"): 5,
        (blkio, "/dev/sdb", "8", "16", "Write"): 6,
    }


def test_metrics_have_pressure_in_seconds_and_zero_without_psi() -> None:
    used = Figures(cpu_stalls=Stalls(Pressure(total_us=2_500_000), Pressure(total_us=1_000_000)))
    waiting, stalled = "container_pressure_cpu_waiting_seconds_total", "container_pressure_cpu_stalled_seconds_total"
    assert values(metrics.Measurements(figures=used), waiting, stalled) == {(waiting,): 2, (stalled,): 1}
    assert values(metrics.Measurements(), waiting, stalled) == {(waiting,): 0, (stalled,): 0}


def test_metrics_leave_out_open_files_that_are_too_many() -> None:
    names = "container_file_descriptors", "container_sockets"
    whole = metrics.Measurements(processes=metrics.Processes(2, descriptors=7, sockets=0))
    assert values(whole, *names) == {(names[0],): 7, (names[1],): 0}
    many = metrics.Measurements(processes=metrics.Processes(2, descriptors=None, sockets=None))
    assert values(many, *names) == {}
