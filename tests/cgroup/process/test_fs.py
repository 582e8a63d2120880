"""Cgroups made and removed: on this machine's own hierarchy, and v2 on a directory tree that looks like one."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import Hierarchy, hierarchy, huge_page_sizes, parse_mountinfo
from actors._cgroup.kill import kill_processes
from actors._cgroup.limits import Limits, files, read_limits, write_limits
from actors._cgroup.quantities.resources import PodLimits
from actors._host.machine import memory_capacity
from proto.agent.settings import Settings
from proto.v1 import Pod
from tests.cgroups import make_files
from tests.harness import wait_for

V1 = b"""31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:15 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def test_mounts_of_v1_with_v2_beside_it() -> None:
    tree = parse_mountinfo(V1)
    assert not tree.unified
    assert tree.mounts["cpuacct"] == tree.mounts["cpu"] == "/sys/fs/cgroup/cpu,cpuacct"
    assert tree.paths("/kubepods") == [
        "/sys/fs/cgroup/cpu,cpuacct/kubepods",
        "/sys/fs/cgroup/memory/kubepods",
        "/sys/fs/cgroup/systemd/kubepods",
        "/sys/fs/cgroup/unified/kubepods",
    ]
    assert tree.path("pids", "/kubepods") is None


def test_mounts_of_v2() -> None:
    tree = parse_mountinfo(V2)
    assert tree.unified
    assert tree.path("memory", "/kubepods") == "/sys/fs/cgroup/kubepods"


def pod(uid: str, **resources: Any) -> Pod:
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return msgspec.convert({"metadata": {"uid": uid, "name": "p"}, "spec": spec}, Pod)


# cgroup v2, as far as plain directories can stand in for it


@pytest.fixture
def unified(tmp_path: Path) -> Hierarchy:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    return Hierarchy(unified=True, mounts={"": str(tmp_path)})


def test_v2_controllers_are_enabled_before_children_are_created(unified: Hierarchy, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):  # a plain directory's child has no cgroup.controllers
        fs.create("/kubepods/podx", PodLimits(cpu_shares=2), unified)
    assert (tmp_path / "cgroup.subtree_control").read_text().split() == ["+cpuset", "+io", "+memory", "+pids"]


def test_v2_controllers_are_enabled_for_an_existing_bare_cgroup(unified: Hierarchy, tmp_path: Path) -> None:
    make_files(tmp_path / "kubepods", "cpu.weight")
    fs.create("/kubepods", PodLimits(cpu_shares=2), unified)
    assert (tmp_path / "cgroup.subtree_control").read_text().split() == ["+cpuset", "+io", "+memory", "+pids"]


def test_v2_files_and_their_values(unified: Hierarchy, tmp_path: Path) -> None:
    make_files(tmp_path / "kubepods/podx", "cpu.weight", "cpu.max", "memory.max", "pids.max")
    fs.create("/kubepods/podx", PodLimits(1024, 20_000, 100_000, 1 << 20, 99), unified)
    made = {path.name: path.read_text() for path in (tmp_path / "kubepods/podx").iterdir()}
    assert made == {"cpu.weight": "39", "cpu.max": "20000 100000", "memory.max": "1048576", "pids.max": "99"}
    fs.create("/kubepods/podx", PodLimits(1024, -1, 100_000), unified)
    assert (tmp_path / "kubepods/podx/cpu.max").read_text().startswith("max 100000")


def test_limit_without_its_controller_says_what_is_missing(unified: Hierarchy, tmp_path: Path) -> None:
    make_files(tmp_path / "kubepods/podx", "cpu.weight")
    with pytest.raises(FileNotFoundError, match=r"memory\.max"):
        write_limits("/kubepods/podx", PodLimits(2, memory_bytes=1 << 20), unified)
    assert not (tmp_path / "kubepods/podx/memory.max").exists()


FULL = PodLimits(1024, 20_000, 100_000, 1 << 20, 99, huge_pages=(("2MB", 0), ("1GB", 1 << 30)))


@pytest.mark.parametrize(
    ("unified", "expected"),
    [
        (
            True,
            {
                "cpu.weight": "39",
                "cpu.max": "20000 100000",
                "memory.max": "1048576",
                "pids.max": "99",
                "hugetlb.2MB.max": "0",
                "hugetlb.2MB.rsvd.max": "0",
                "hugetlb.1GB.max": "1073741824",
                "hugetlb.1GB.rsvd.max": "1073741824",
            },
        ),
        (
            False,
            {
                "cpu.shares": "1024",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "20000",
                "memory.limit_in_bytes": "1048576",
                "pids.max": "99",
                "hugetlb.2MB.limit_in_bytes": "0",
                "hugetlb.2MB.rsvd.limit_in_bytes": "0",
                "hugetlb.1GB.limit_in_bytes": "1073741824",
                "hugetlb.1GB.rsvd.limit_in_bytes": "1073741824",
            },
        ),
    ],
)
def test_every_limit_has_its_file(unified: bool, expected: dict[str, str]) -> None:
    assert {file: text for _, file, text in files(FULL, unified=unified)} == expected
    assert files(PodLimits(), unified=unified) == []


def test_limits_are_read_as_they_were_written(unified: Hierarchy, tmp_path: Path) -> None:
    where = tmp_path / "kubepods/podx"
    make_files(where, "cpu.weight", "cpu.max", "memory.max", "pids.max")
    assert read_limits("/kubepods/pody", unified) is None
    write_limits("/kubepods/podx", FULL, unified)
    assert read_limits("/kubepods/podx", unified) == Limits(999, 20_000, 100_000, 1 << 20)  # the fewest of 39
    assert not (where / "hugetlb.2MB.max").exists()  # a kernel without that controller
    (where / "cpu.max").write_text("")  # what is shorter does not shorten a plain file
    write_limits("/kubepods/podx", PodLimits(cpu_quota_us=-1, cpu_period_us=100_000), unified)
    (where / "memory.max").write_text("max\n")
    assert read_limits("/kubepods/podx", unified) == Limits(999, None, 100_000, None)


def test_limits_of_v1_are_read(tmp_path: Path) -> None:
    tree = Hierarchy(unified=False, mounts={"cpu": f"{tmp_path}/cpu", "memory": f"{tmp_path}/memory"})
    make_files(tmp_path / "cpu/podx", "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us")
    make_files(tmp_path / "memory/podx", "memory.limit_in_bytes")
    write_limits("/podx", PodLimits(2, 20_000, 100_000, 1 << 20), tree)
    assert read_limits("/podx", tree) == Limits(2, 20_000, 100_000, 1 << 20)
    (tmp_path / "cpu/podx/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "memory/podx/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read_limits("/podx", tree) == Limits(2, None, 100_000, None)


def test_v2_usage(unified: Hierarchy, tmp_path: Path) -> None:
    where = tmp_path / "kubepods"
    where.mkdir()
    (where / "memory.current").write_text("1000\n")
    (where / "memory.stat").write_text("anon 1\nactive_file 2\ninactive_file 400\n")
    (where / "cpu.stat").write_text("usage_usec 7\nuser_usec 3\n")
    (where / "pids.current").write_text("5\n")
    assert fs.usage("/kubepods", unified) == fs.Usage(1000, 600, 7000, 5)
    assert fs.usage("/other", unified) is None


def test_v2_pods_are_found_and_removed(unified: Hierarchy, tmp_path: Path) -> None:
    for name in ("kubepods/poda/container", "kubepods/burstable/podb", "kubepods/besteffort", "kubepods/podc/x/y"):
        (tmp_path / name).mkdir(parents=True)
    settings = Settings()
    assert fs.list_pod_cgroups(settings, unified) == {
        "a": "/kubepods/poda",
        "b": "/kubepods/burstable/podb",
        "c": "/kubepods/podc",
    }
    assert fs.find_pod_cgroups(("b", "c", "none"), settings, unified) == {
        "b": "/kubepods/burstable/podb",
        "c": "/kubepods/podc",
    }
    for name in fs.list_pod_cgroups(settings, unified).values():
        assert fs.remove_pod_cgroup(name, settings, unified)
    assert fs.list_pod_cgroups(settings, unified) == {}
    assert (tmp_path / "kubepods/burstable").is_dir()


def test_process_of_another_pid_namespace_is_not_signalled(
    unified: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: signalled.append(pid))
    (tmp_path / "kubepods/podu-1").mkdir(parents=True)
    (tmp_path / "kubepods/podu-1/cgroup.procs").write_text("0\n4194304\n")
    assert kill_processes("/kubepods/podu-1", unified) == 1
    assert signalled == [4194304]


# This machine's own


@pytest.fixture
def settings() -> Iterator[Settings]:
    root = f"nvtest-{uuid.uuid4().hex[:8]}"
    try:
        fs.create(f"/{root}", PodLimits(cpu_shares=2), hierarchy())
    except OSError as error:
        pytest.fail(f"cannot make a cgroup, which these tests need: {error}")
    yield Settings(cgroup_root=f"/{root}")
    assert fs.remove(f"/{root}", hierarchy())
    assert not any(os.path.exists(path) for path in hierarchy().paths(f"/{root}"))


def read(settings: Settings, controller: str, name: str, file: str) -> str:
    where = hierarchy().path(controller, name)
    assert where is not None
    return Path(where, file).read_text().strip()


@pytest.mark.needs("cgroups")
def test_a_real_pods_cgroup_from_its_making_to_its_removal(settings: Settings) -> None:
    subject = pod("u-1", requests={"cpu": "50m", "memory": "16Mi"}, limits={"cpu": "100m", "memory": "32Mi"})
    name = f"{settings.cgroup_root}/kubepods/burstable/podu-1"
    for _ in range(2):
        fs.create_pod_cgroup(subject, settings)
    assert fs.list_pod_cgroups(settings) == {"u-1": name}
    if hierarchy().unified:
        assert read(settings, "memory", name, "memory.max") == "33554432"
        assert read(settings, "cpu", name, "cpu.max") == "10000 100000"
    else:
        assert read(settings, "memory", name, "memory.limit_in_bytes") == "33554432"
        assert read(settings, "cpu", name, "cpu.shares") == "51"
        assert read(settings, "cpu", name, "cpu.cfs_quota_us") == "10000"
        assert read(settings, "cpuset", name, "cpuset.cpus") != ""
    usage = fs.usage(name)
    assert usage is not None
    assert usage.pids == 0
    for _ in range(2):
        assert fs.remove_pod_cgroup(name, settings)
    assert fs.list_pod_cgroups(settings) == {}


@pytest.mark.needs("cgroups")
def test_pod_cgroup_below_just_created_parents_can_be_entered(settings: Settings) -> None:
    """On v1 new parents have no CPUs. On v2 the case does not exist."""
    subject, name = pod("u-3"), f"{settings.cgroup_root}/kubepods/besteffort/podu-3"
    for made in (f"{settings.cgroup_root}/kubepods", f"{settings.cgroup_root}/kubepods/besteffort", name):
        Path(str(hierarchy().path("cpuset", made))).mkdir()
    fs.create_pod_cgroup(subject, settings)
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            for path in hierarchy().paths(name):
                Path(path, "cgroup.procs").write_text(str(process.pid))
        finally:
            process.kill()
    wait_for(lambda: fs.remove_pod_cgroup(name, settings), 20, "it goes")


@pytest.mark.needs("cgroups")
def test_a_process_inside_keeps_a_cgroup_and_its_end_frees_it(settings: Settings) -> None:
    subject = pod("u-2")
    fs.create_pod_cgroup(subject, settings)
    name = fs.list_pod_cgroups(settings)["u-2"]
    child = f"{name}/container"
    fs.create(child, PodLimits(cpu_shares=2, pids=10), hierarchy())
    where = hierarchy().path("pids", child)
    assert where is not None
    with subprocess.Popen(["sleep", "1000"]) as process:
        Path(where, "cgroup.procs").write_text(str(process.pid))
        usage = fs.usage(name)
        assert usage is not None
        assert usage.pids == 1
        assert fs.remove_pod_cgroup(name, settings) is False
        process.kill()
    wait_for(lambda: fs.remove_pod_cgroup(name, settings), 5, "the emptied cgroup goes")


def test_the_root_uses_memory() -> None:
    usage = fs.usage("/")
    assert usage is not None
    assert 0 < usage.memory_working_set_bytes <= memory_capacity()


def test_huge_page_sizes_are_named_as_in_cri(tmp_path: Path) -> None:
    for size in ("1048576kB", "2048kB", "64kB"):
        (tmp_path / f"hugepages-{size}").mkdir()
    assert huge_page_sizes(str(tmp_path)) == ("64KB", "2MB", "1GB")
    assert huge_page_sizes(str(tmp_path / "none")) == ()
