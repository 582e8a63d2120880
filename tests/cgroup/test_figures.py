"""Reading one cgroup: v1 and v2 as directories of files, and this machine's own root."""

from pathlib import Path

import pytest

from actors._cgroup import figures, fs
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.transfers import MOST_DISKS, Transfers
from actors._host import machine

V2 = {
    "memory.current": "5000000\n",
    "memory.stat": "anon 100\nfile 200\nkernel 300\nfile_mapped 40\ninactive_file 1000000\nactive_file 60\n"
    "pgfault 70\npgmajfault 8\n",
    "memory.max": "max\n",
    "memory.min": "4096\n",
    "memory.low": "8192\n",
    "memory.peak": "6000000\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n",
    "memory.swap.current": "9\n",
    "memory.swap.max": "1048576\n",
    "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 7\nnr_throttled 2\nthrottled_usec 30\n"
    "nr_bursts 1\nburst_usec 4\n",
    "cpu.max": "50000 100000\n",
    "cpu.weight": "100\n",
    "cpu.pressure": "some avg10=1.50 avg60=0.20 avg300=0.01 total=1234\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    "io.stat": "8:0 rbytes=5 wbytes=6 rios=1 wios=2 dbytes=0 dios=0\n",
    "pids.current": "11\n",
    "pids.max": "max\n",
    "cgroup.procs": "12\n13\n",
}
V1 = {
    "memory/memory.usage_in_bytes": "5000000\n",
    "memory/memory.stat": "cache 1\nrss 2\npgfault 70\npgmajfault 8\ntotal_cache 200\ntotal_rss 100\n"
    "total_mapped_file 40\ntotal_inactive_file 1000000\ntotal_active_file 60\ntotal_swap 9\ntotal_pgfault 700\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/memory.memsw.limit_in_bytes": "1048576\n",
    "memory/memory.soft_limit_in_bytes": "4096\n",
    "memory/memory.max_usage_in_bytes": "6000000\n",
    "memory/memory.failcnt": "3\n",
    "memory/memory.kmem.usage_in_bytes": "300\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory/cgroup.procs": "12\n13\n",
    "cpuacct/cpuacct.usage": "1500000\n",
    "cpuacct/cpuacct.stat": "user 1\nsystem 2\n",
    "cpu/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 30000\nnr_bursts 1\nburst_time 4000\n",
    "cpu/cpu.cfs_quota_us": "50000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpu/cpu.shares": "1024\n",
    "blkio/blkio.throttle.io_service_bytes_recursive": "8:0 Read 5\n8:0 Write 6\nTotal 11\n",
    "blkio/blkio.throttle.io_serviced_recursive": "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
    "pids/pids.current": "11\n",
    "pids/pids.max": "max\n",
}


def v2(tmp_path: Path, files: dict[str, str]) -> Hierarchy:
    (tmp_path / "pod").mkdir()
    for name, text in files.items():
        (tmp_path / "pod" / name).write_text(text)
    return Hierarchy(unified=True, mounts={"": str(tmp_path)})


def v1(tmp_path: Path, files: dict[str, str]) -> Hierarchy:
    for name, text in files.items():
        controller, _, file = name.partition("/")
        directory = tmp_path / controller / "pod"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
    return Hierarchy(
        unified=False, mounts={name: f"{tmp_path}/{name}" for name in ("memory", "cpu", "cpuacct", "pids", "blkio")}
    )


@pytest.mark.parametrize(("make", "files"), [(v1, V1), (v2, V2)], ids=["v1", "v2"])
def test_both_versions_say_the_same_of_the_same_use(tmp_path: Path, make, files) -> None:
    found = figures.read("/pod", make(tmp_path, files), 5.0, detailed=True)
    assert found is not None
    detail = found.detail
    assert detail is not None
    assert (found.time, found.cpu_ns, found.memory_bytes, found.working_set_bytes) == (
        5.0,
        1_500_000,
        5_000_000,
        4_000_000,
    )
    assert (found.rss_bytes, found.page_faults, found.major_page_faults) == (100, 70, 8)
    assert (found.memory_limit_bytes, found.swap_bytes, found.swap_limit_bytes) == (0, 9, 1_048_576)
    assert (detail.cache_bytes, detail.mapped_file_bytes, detail.active_file_bytes) == (200, 40, 60)
    assert (detail.kernel_bytes, detail.max_bytes, detail.failures, detail.oom_kills) == (300, 6_000_000, 3, 1)
    assert (detail.periods, detail.throttled_periods, detail.throttled_ns) == (7, 2, 30_000)
    assert (detail.burst_periods, detail.burst_ns) == (1, 4_000)
    assert (detail.quota_us, detail.period_us, detail.reservation_bytes) == (50_000, 100_000, 4096)
    assert (detail.threads, detail.threads_max) == (11, 0)
    assert detail.transfers == (Transfers(8, 0, {"Read": 5, "Write": 6}, {"Read": 1, "Write": 2}),)


def test_pressure_files_are_read_and_missing_ones_are_zero(tmp_path: Path) -> None:
    found = figures.read("/pod", v2(tmp_path, V2), 5.0)
    assert found is not None
    assert found.cpu_stalls.some == figures.Pressure(1.5, 0.2, 0.01, 1234)
    assert found.cpu_stalls.full.total_us == 5
    assert found.io_stalls == figures.NO_STALLS


def stall_times(found: figures.Figures) -> dict[str, float | None]:
    return {one.name: one.seconds(found) for one in figures.STALL_TIMES}


def test_stall_times_are_seconds_and_absent_without_a_psi_file(tmp_path: Path) -> None:
    found = figures.read("/pod", v2(tmp_path, V2), 5.0)
    assert found is not None
    assert stall_times(found) == {
        "pressure_cpu_waiting_seconds_total": 0.001234,
        "pressure_cpu_stalled_seconds_total": 0.000005,
        "pressure_memory_waiting_seconds_total": None,
        "pressure_memory_stalled_seconds_total": None,
        "pressure_io_waiting_seconds_total": None,
        "pressure_io_stalled_seconds_total": None,
    }


def test_stall_time_of_a_quiet_cgroup_is_zero(tmp_path: Path) -> None:
    quiet = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"  # CPUs have no line `full` before Linux 5.13
    found = figures.read("/pod", v2(tmp_path, V2 | {"cpu.pressure": quiet}), 5.0)
    assert found is not None
    assert stall_times(found)["pressure_cpu_waiting_seconds_total"] == 0
    assert stall_times(found)["pressure_cpu_stalled_seconds_total"] == 0


def detail(tree: Hierarchy) -> figures.Detail:
    found = figures.read("/pod", tree, 5.0, detailed=True)
    assert found is not None
    assert found.detail is not None
    return found.detail


def test_v1_without_recursive_files_has_the_cgroups_own_transfers(tmp_path: Path) -> None:
    old = {name.replace("_recursive", ""): text for name, text in V1.items()}
    assert [one.numbers for one in detail(v1(tmp_path, old)).transfers] == ["8:0"]


def test_idle_cgroup_of_v1_has_no_transfers(tmp_path: Path) -> None:
    idle = V1 | {name: "Total 0\n" for name in V1 if name.startswith("blkio/")}
    own = {"blkio/blkio.throttle.io_service_bytes": "8:0 Read 9\n", "blkio/blkio.throttle.io_serviced": "8:0 Read 9\n"}
    assert detail(v1(tmp_path, idle | own)).transfers == ()


def test_v1_without_blkio_has_no_transfers(tmp_path: Path) -> None:
    tree = v1(tmp_path, V1)
    del tree.mounts["blkio"]
    assert detail(tree).transfers == ()


def test_only_the_beginning_of_a_huge_io_stat_is_read(tmp_path: Path) -> None:
    line = "8:{} rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
    huge = "".join(line.format(one) for one in range(20_000))
    found = detail(v2(tmp_path, V2 | {"io.stat": huge})).transfers
    assert len(found) == MOST_DISKS
    assert found[-1].minor < figures._DISKS_BYTES // len(line) < 20_000


@pytest.mark.parametrize(
    ("text", "most", "shown"), [("0\n", 0, 0), ("max\n", None, 0), (None, None, 0), ("1048576\n", 1 << 20, 1 << 20)]
)
def test_forbidden_swap_differs_from_no_limit(tmp_path: Path, text: str | None, most: int | None, shown: int) -> None:
    """Metrics of cAdvisor show 0 for both."""
    files = {name: one for name, one in V2.items() if name != "memory.swap.max"}
    found = figures.read("/pod", v2(tmp_path, files if text is None else files | {"memory.swap.max": text}), 5.0)
    assert found is not None
    assert (found.swap_max_bytes, found.swap_limit_bytes) == (most, shown)


@pytest.mark.parametrize(("text", "most"), [("9223372036854771712\n", None), (None, None), ("1048576\n", 1 << 20)])
def test_swap_of_v1_has_a_limit_only_if_it_is_set(tmp_path: Path, text: str | None, most: int | None) -> None:
    files = {name: one for name, one in V1.items() if name != "memory/memory.memsw.limit_in_bytes"}
    found = figures.read(
        "/pod", v1(tmp_path, files | ({"memory/memory.memsw.limit_in_bytes": text} if text else {})), 5.0
    )
    assert found is not None
    assert found.swap_max_bytes == most


def test_processes_children_and_what_is_not_there(tmp_path: Path) -> None:
    tree = v2(tmp_path, V2)
    (tmp_path / "pod" / "abc").mkdir()
    assert figures.processes("/pod", tree) == [12, 13]
    assert figures.children("/pod", tree) == ["abc"]
    assert figures.created("/pod", tree) > 0
    assert figures.read("/gone", tree, 5.0) is None
    assert figures.processes("/gone", tree) == []
    assert figures.children("/gone", tree) == []
    assert figures.created("/gone", tree) == 0


def test_cgroup_that_goes_while_it_is_read_has_no_figures(tmp_path: Path) -> None:
    """Not the machine's memory, which is the root's, whose memory.current is missing, too."""
    assert figures.read("/pod", v2(tmp_path, {"memory.stat": "anon 5\n"}), 5.0) is None


def test_files_that_are_missing_or_nonsense_count_nothing(tmp_path: Path) -> None:
    broken = {"memory.current": "12\n", "memory.stat": "not a number at all\n", "cpu.max": "\n", "memory.max": "\n"}
    found = figures.read("/pod", v2(tmp_path, broken), 5.0, detailed=True)
    assert found is not None
    assert (found.memory_bytes, found.working_set_bytes, found.cpu_ns) == (12, 12, 0)


@pytest.mark.parametrize(("weight", "shares"), [(0, 0), (1, 2), (39, 998), (100, 2597), (10_000, 262_144)])
def test_weights_as_shares(weight: int, shares: int) -> None:
    assert figures.shares_of_weight(weight) == shares


def test_root_of_v2_counts_the_pages_of_processes_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kubelet: not the kernel's own memory, which eviction cannot free. Its swap is the machine's."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nSwapTotal: 30 kB\nSwapFree: 10 kB\n")
    monkeypatch.setattr(machine, "MEMINFO", str(tmp_path / "meminfo"))
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 500\nkernel 70000\ninactive_file 200\n")
    tree = Hierarchy(unified=True, mounts={"": str(tmp_path)})
    for detailed in (False, True):
        found = figures.read("/", tree, 5.0, detailed=detailed)
        assert found is not None
        assert (found.memory_bytes, found.working_set_bytes, found.swap_bytes) == (1500, 1300, 20 * 1024)
    usage = fs.usage("/", tree)
    assert usage is not None
    assert (usage.memory_bytes, usage.memory_working_set_bytes) == (1500, 1300)


def test_root_without_the_memory_controller_counts_all_memory_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    monkeypatch.setattr(machine, "MEMINFO", str(tmp_path / "meminfo"))
    tree = Hierarchy(unified=True, mounts={"": str(tmp_path)})
    found, usage = figures.read("/", tree, 5.0), fs.usage("/", tree)
    assert found is not None
    assert usage is not None
    assert found.memory_bytes == found.working_set_bytes == usage.memory_working_set_bytes == 8000 * 1024


def test_this_machines_root() -> None:
    found = figures.read("/", hierarchy(), 5.0, detailed=True)
    assert found is not None
    assert found.cpu_ns > 0
    assert 0 < found.working_set_bytes <= found.memory_bytes
    assert found.memory_limit_bytes == 0
