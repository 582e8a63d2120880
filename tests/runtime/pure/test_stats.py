"""CRI's statistics from the figures of a cgroup."""

from actors._cgroup.figures import Figures, Pressure, Stalls
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
