"""Parts of a reading: network counters, the container of a cgroup, and the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors._base.messaging.futures import Future
from actors._cgroup.hierarchy import Hierarchy
from actors._host import interfaces
from actors.stats import inventory, measure, reading
from actors.stats.inventory import Inventory, container_id
from actors.stats.pages import hardware
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.stats import FsStats

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
        before = hardware.processes([other.pid])
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.stdout.readline()
        after = hardware.processes([other.pid])
        other.kill()
    assert (after.sockets - before.sockets, after.descriptors - before.descriptors) == (1, 2)
    assert before.open_files_max != 0
    assert hardware.processes([]) == type(before)()


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
