"""Parts of a reading: network counters, the container of a cgroup, and the machine."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._cgroup.hierarchy import Hierarchy
from actors._host import interfaces, open_files
from actors._host.open_files import Counter
from actors.stats import inventory, measure, reading, throttling
from actors.stats.inventory import Inventory, container_id
from actors.stats.pages import cadvisor, hardware
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.stats import FsStats
from tests.stats.sample import READING

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:     100       1    0    0    0     0          0         0      100       1    0    0
  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0
veth1:  5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5
  odd
"""
ROUTE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
ens5\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
ens6\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
"""


def test_interfaces_exclude_loopback_and_pods_veth_ends() -> None:
    assert interfaces.parse(NET_DEV) == [interfaces.Interface("eth0", 1000, 10, 1, 2, 2000, 20, 3, 4)]


MOUNTS = b"""21 1 0:18 / /proc rw - proc proc rw
30 1 0:40 /kubelet /var/lib/kubelet rw,noatime shared:7 - btrfs /dev/vdb rw,subvolid=256,subvol=/kubelet
31 1 0:40 /odd /odd rw - btrfs /dev/../tmp/hangs rw
32 1 0:41 / /fuse rw - fuse /dev/vdb rw
33 1 0:42 / /rest rw - btrfs
"""


@pytest.mark.parametrize(("mount_id", "source"), [(30, "/dev/vdb"), (3, ""), (21, ""), (31, ""), (32, ""), (33, "")])
def test_only_a_btrfs_has_its_disk_as_source(mount_id: int, source: str) -> None:
    assert measure.btrfs_source(MOUNTS, mount_id) == source


@pytest.mark.parametrize(("kind", "is_disk"), [(stat.S_IFBLK, True), (stat.S_IFCHR, False), (0, False)])
def test_btrfs_subvolumes_are_on_the_disk_of_their_mount(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: int, is_disk: bool
) -> None:
    """Two directories stand for the subvolumes, which have two numbers."""
    paths = [tmp_path / name for name in ("kubelet", "containerd")]
    for path in paths:
        path.mkdir()
    number = itertools.count(100)

    def found(path: str) -> Any:
        if path != "/dev/nv-disk":
            return SimpleNamespace(st_dev=os.makedev(0, next(number)))
        if not kind:
            raise FileNotFoundError(path)
        return SimpleNamespace(st_mode=kind, st_rdev=os.makedev(8, 17))

    mount_id = measure._mount_id(str(tmp_path))
    monkeypatch.setattr(measure.mountinfo, "read", lambda: b"%d 1 0:9 / / rw - btrfs /dev/nv-disk rw\n" % mount_id)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", found)
        devices = {measure.file_system(str(path)).device for path in paths}
    assert devices == ({os.makedev(8, 17)} if is_disk else {os.makedev(0, 100), os.makedev(0, 101)})


def test_other_file_systems_keep_their_number(tmp_path: Path) -> None:
    for path in (str(tmp_path), "/dev/shm", "/proc"):
        assert measure.file_system(path).device == os.stat(path).st_dev


def test_ended_process_has_no_network() -> None:
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    assert interfaces.of_process(gone) == []
    assert interfaces.namespace(gone) == 0
    assert interfaces.namespace("self") == interfaces.namespace(os.getpid()) > 0


def test_default_interface_is_that_of_the_default_route(tmp_path: Any) -> None:
    (tmp_path / "route").write_text(ROUTE)
    assert interfaces.default_interface(str(tmp_path / "route")) == "ens6"
    assert interfaces.default_interface(str(tmp_path / "none")) == ""


ID = "ab" * 32


@pytest.mark.parametrize(
    ("cgroup", "found"),
    [
        (ID, ID),
        (f"cri-containerd-{ID}.scope", ID),
        (f"crio-{ID}", ID),
        (f"crio-{ID}.scope", ID),
        (f"crio-conmon-{ID}", ""),
        (f"crio-conmon-{ID}.scope", ""),
        ("init.scope", ""),
        ("system.slice", ""),
        (f"{ID}.slice", ""),
    ],
)
def test_container_id_is_read_from_the_cgroup_name(cgroup: str, found: str) -> None:
    assert container_id(cgroup) == found


def machine(root: Path, **memory: int) -> Hierarchy:
    """A cgroup v2 hierarchy with these cgroups, which use so many bytes. `__` in a name is a slash."""
    for name, used in memory.items():
        cgroup = root / name.replace("__", "/")
        cgroup.mkdir(parents=True)
        (cgroup / "memory.current").write_text(f"{used}\n")
        (cgroup / "cgroup.procs").write_text("")
    return Hierarchy(unified=True, mounts={"": str(root)})


@pytest.mark.parametrize(
    ("own", "settings", "shown"),
    [
        ("/agent", {}, {"kubelet": 7, "pods": 5}),
        ("/", {}, {"pods": 5}),
        ("/agent", {"runtime_cgroups": "/runtime/"}, {"kubelet": 7, "runtime": 3, "pods": 5}),
        ("/agent", {"runtime_cgroups": "/none"}, {"kubelet": 7, "pods": 5}),
        ("/", {"runtime_cgroups": "/", "system_cgroups": "system"}, {"misc": 2, "pods": 5}),
        ("/", {"cgroups_per_qos": False, "cgroup_root": "/above"}, {"pods": 9}),
    ],
)
def test_system_containers_are_those_with_a_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, settings: dict[str, Any], shown: dict[str, int]
) -> None:
    """The agent's own cgroup, those of --runtime-cgroups and systemCgroups, and that of all pods."""
    tree = machine(tmp_path, agent=7, kubepods=5, runtime=3, system=2, above=9)
    monkeypatch.setattr(reading, "own_cgroups", lambda: {"": own})
    chosen = Settings(**settings)
    found = reading.read(chosen, tree, reading.find(chosen, tree), {})
    assert {one.name: one.figures.memory_bytes for one in found.system} == shown


def test_cpu_limits_of_a_container_and_its_pod_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = "kubepods__burstable__podu"
    tree = machine(tmp_path, **{pod: 1, f"{pod}__{'a' * 64}": 1, f"{pod}__{'b' * 64}": 1})
    monkeypatch.setattr(throttling, "hierarchy", lambda: tree)
    for name, most, stat_ in (
        ("", "max 100000", "usage_usec 1"),
        ("a" * 64, "2000 100000", "nr_periods 9\nnr_throttled 8\nthrottled_usec 700000"),
    ):
        directory = tmp_path / "kubepods/burstable/podu" / name
        (directory / "cpu.max").write_text(f"{most}\n")
        (directory / "cpu.stat").write_text(f"{stat_}\n")
    own, whole = throttling.read(Settings(), "u", "a" * 64)
    assert (own.quota_us, own.period_us, own.periods, own.throttled_periods) == (2000, 100_000, 9, 8)
    assert own.throttled_ns == 700_000_000
    assert whole.quota_us == 0
    assert throttling.is_limited((own, whole))
    assert not throttling.is_limited(throttling.read(Settings(), "u", "b" * 64))
    assert not throttling.is_limited(throttling.read(Settings(), "u", "c" * 64)), "it has ended"
    assert not throttling.is_limited(throttling.read(Settings(), "v", "a" * 64))
    assert not throttling.is_limited(throttling.read(LOOSE, "u", "a" * 64)), "its cgroup may be anywhere"


LOOSE = Settings(cgroups_per_qos=False)
SANDBOX, WEB, SIDE, ALIEN, FREE = (digit * 64 for digit in "abcde")


def identity(id_: str, name: str, pod: str = "web") -> inventory.Identity:
    return inventory.Identity(id_, name, f"uid-{pod}", pod, "default", "busybox", 5.0 if name else 4.0)


def test_pod_without_a_cgroup_is_the_sum_of_its_containers(tmp_path: Path) -> None:
    names = {f"k8s_io__{SANDBOX}": 1, f"k8s_io__{WEB}": 20, f"system__cri-{SIDE}.scope": 300, f"docker__{ALIEN}": 4}
    tree = machine(tmp_path, **names)
    machine(tmp_path, **{f"k8s_io__{WEB}__{FREE}": 5000})
    found = reading.find(LOOSE, tree)
    assert found.ids == {SANDBOX, WEB, SIDE, ALIEN}, "a container may give any name to a cgroup below its own"
    known = {SANDBOX: identity(SANDBOX, ""), WEB: identity(WEB, "c"), SIDE: identity(SIDE, "s")}
    (pod,) = reading.read(LOOSE, tree, found, known).pods
    assert (pod.uid, pod.name, pod.cgroup, pod.started) == ("uid-web", "web", "", 4.0)
    assert sorted((one.identity.name, one.figures.memory_bytes) for one in pod.containers) == [("c", 20), ("s", 300)]
    assert pod.figures.memory_bytes == 320
    assert reading.read(LOOSE, tree, found, {SANDBOX: known[SANDBOX]}).pods == [], "the kubelet lists no such pod"


def test_container_without_a_cgroup_has_the_runtimes_figures(tmp_path: Path) -> None:
    def stats(id_: str, working_set: int) -> pb.ContainerStats:
        used = pb.MemoryUsage(
            working_set_bytes=pb.UInt64Value(value=working_set), available_bytes=pb.UInt64Value(value=6)
        )
        cpu = pb.CpuUsage(timestamp=9_000_000_000, usage_core_nano_seconds=pb.UInt64Value(value=8))
        return pb.ContainerStats(attributes=pb.ContainerAttributes(id=id_), memory=used, cpu=cpu)

    tree = machine(tmp_path, **{f"k8s_io__{WEB}": 20})
    reported = measure.figures([stats(WEB, 1), stats(SIDE, 1 << 63), stats(FREE, 1 << 63), stats(ALIEN, 2)])
    known = {WEB: identity(WEB, "c"), SIDE: identity(SIDE, "s"), FREE: identity(FREE, "f")}
    (pod,) = reading.read(LOOSE, tree, reading.find(LOOSE, tree), known, reported).pods
    web, free, side = sorted(pod.containers, key=lambda one: one.identity.name)
    assert (web.cgroup, web.figures.memory_bytes, web.figures.cpu_ns) == (f"/k8s_io/{WEB}", 20, 0)
    assert (side.cgroup, side.figures.cpu_ns, side.figures.time) == ("", 8, 9.0)
    assert free.figures.memory_limit_bytes == (1 << 63) + 6
    assert pod.figures.working_set_bytes == (1 << 63) - 1, "what JSON can hold"


def test_search_for_containers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_CGROUPS", 3)
    tree = machine(tmp_path, **{f"a__b__c__{WEB}": 1, SIDE: 1})
    assert reading.find(LOOSE, tree).ids == {SIDE}
    assert reading.find(LOOSE, Hierarchy(unified=False, mounts={})).ids == set()


class Runtime:
    """A runtime with the lists that a test chooses; counts the calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.containers: list[pb.Container] = []

    def list_pod_sandbox(self, _: Any = None) -> Future[list[pb.PodSandbox]]:
        self.asked += 1
        return done([])

    def list_containers(self, _: Any = None) -> Future[list[pb.Container]]:
        return done(self.containers)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set(value)
    return future


def learn(one: Inventory, *ids: str) -> None:
    coroutine = one.update(ids)
    for _ in range(10):
        try:
            coroutine.send(None)  # every result that it awaits is ready
        except StopIteration:
            return
    raise AssertionError("it does not end")


def container(id_: str, uid: str = "u") -> pb.Container:
    labels = {inventory.POD_UID: uid, inventory.POD_NAME: "web", inventory.CONTAINER_NAME: "c"} if uid else {}
    return pb.Container(id=id_, labels=labels, created_at=5_000_000_000, image=pb.ImageSpec(image="busybox"))


def test_runtime_is_asked_only_for_an_unknown_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime: Any = Runtime()
    known = Inventory(runtime)
    runtime.containers = [container("a"), container("b")]
    learn(known, "a", "b")
    learn(known, "a", "b")
    assert runtime.asked == 1
    assert known.known["a"] == inventory.Identity("a", "c", "u", "web", "", "busybox", 5.0)
    learn(known, "a")
    assert (set(known.known), runtime.asked) == ({"a"}, 1)
    runtime.containers.append(container("alien", uid=""))
    learn(known, "a", "alien")
    learn(known, "a", "alien")
    assert runtime.asked == 3, "it may be one that is only just being made"
    monkeypatch.setattr(inventory, "UNKNOWN_S", -1.0)
    learn(known, "a", "alien")
    assert runtime.asked == 3, "it is nobody's"


def test_without_a_runtime_no_container_is_known() -> None:
    known = Inventory(None)
    learn(known, "a")
    assert known.known == {}


OPENS = """
import socket, sys
print(flush=True)
sys.stdin.readline()
held = socket.socket(), open("/dev/null", "rb")
print(flush=True)
sys.stdin.readline()
"""


def test_open_files_and_sockets_of_processes_are_counted() -> None:
    # Read an idle process: this one has threads of other tests that come and go.
    with subprocess.Popen([sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline()
        before = hardware.processes([other.pid], Counter())
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.stdout.readline()
        after = hardware.processes([other.pid], Counter())
        other.kill()
    assert before.sockets is not None
    assert before.descriptors is not None
    assert (after.sockets, after.descriptors) == (before.sockets + 1, before.descriptors + 2)
    assert before.open_files_max != 0
    assert hardware.processes([], Counter()) == type(before)()


HOLDS = """
import socket, sys
held = [socket.socket() for _ in range(40)]
print(flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder() -> Iterator[int]:
    """The pid of an idle process with 40 sockets."""
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        yield other.pid
        other.kill()


def test_open_files_that_are_too_many_are_not_looked_at(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Counter().count([holder, holder])
    assert (whole.sockets, whole.all_descriptors, whole.all_sockets) == (80, True, True)
    links: list[str] = []
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda name, **more: (links.append(name), readlink(name, **more))[1])
    monkeypatch.setattr(open_files, "MOST_LINKS", 10)
    bounded = Counter().count([holder, holder])
    assert len(links) == 10
    assert bounded.sockets <= 10
    assert not bounded.all_sockets
    figures = hardware.processes([holder], Counter())
    assert figures.sockets is None
    if os.stat("/proc/self/fd").st_size:  # Linux 6.2
        assert (bounded.descriptors, bounded.all_descriptors) == (whole.descriptors, True)
        assert figures.descriptors == whole.descriptors / 2
    else:
        assert figures.descriptors is None


def test_page_leaves_out_open_files_that_are_too_many() -> None:
    for number in (0, None):
        figures = cadvisor.ProcessFigures(2, number, number, 1024)
        page = cadvisor.text(READING, hardware.hardware(), lambda _, found=figures: found).decode()  # type: ignore[misc]
        for name in ("container_file_descriptors", "container_sockets"):
            assert (f"\n{name}{{" in page) == (number == 0)
        assert "\ncontainer_processes{" in page


def test_counting_open_files_ends_at_its_deadline(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "COUNTING_S", -1.0)
    assert Counter().count(itertools.repeat(holder)) == (0, 0, False, False)


def test_machine_and_its_disks_are_read() -> None:
    found = hardware.hardware()
    assert found.cores >= found.physical_cores >= found.sockets >= 1
    assert found.memory_bytes > 0
    root = FsStats(
        path="/", device=os.stat("/").st_dev, capacity_bytes=1, available_bytes=1, inodes=1, inodes_free=1, used_bytes=1
    )
    assert len(hardware.devices(root, root)) == 1
    nowhere = FsStats(path="/x", device=1 << 30, capacity_bytes=5, available_bytes=1, inodes=1, inodes_free=1)
    (device,) = hardware.devices(nowhere)
    assert (device.name, device.counters) == ("/x", (0,) * 11)
