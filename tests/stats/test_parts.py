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
from actors.stats import inventory, reading
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


@pytest.mark.parametrize(("own", "names"), [("/system.slice/agent.service", ["kubelet", "pods"]), ("/", ["pods"])])
def test_agents_own_cgroup_is_the_system_container_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, names: list[str]
) -> None:
    for cgroup, used in (("system.slice/agent.service", 7), ("kubepods", 5)):
        (tmp_path / cgroup).mkdir(parents=True)
        (tmp_path / cgroup / "memory.current").write_text(f"{used}\n")
    monkeypatch.setattr(reading, "own_cgroups", lambda: {"": own})
    tree = Hierarchy(unified=True, mounts={"": str(tmp_path)})
    found = reading.read(Settings(), tree, reading.find(Settings(), tree), {})
    assert [one.name for one in found.system] == names
    assert [one.figures.memory_bytes for one in found.system] == [7, 5][-len(names) :]


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
    assert (device.name, device.counters) == ("/x", ())
