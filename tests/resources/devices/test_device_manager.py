"""Device plugins at the resources process: they lie, hang, die and come back; the process is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from actors.resources.devices import checkpoint
from proto.agent.actor import Describe, GetMetrics
from proto.agent.settings import Settings
from proto.node.node import SetDevices
from proto.plugins import deviceplugin_pb2 as pb
from proto.pods.pod_workers import ResourcesState
from proto.resources.grants import Grant
from proto.resources.resources import AdmitPod, CheckDevicePlugins, GetGrant, ReleasePod, SetPods
from proto.v1 import Pod
from proto.wire.errors import ActorError, Refused
from tests.harness import ActorProcess, wait_for
from tests.resources.devices.device_plugin import Plugin
from tests.resources.devices.pods import GPU, container, pod
from tests.resources.plugin_server import Fault
from tests.resources.provider import MACHINE

QUICK = (
    "from actors.resources.devices import allocation, manager, plugin; "
    "manager.MEET_S = plugin.MEET_S = plugin.PREFER_S = plugin.ALLOCATE_S = plugin.PRE_START_S = 3.0; "
    "allocation.HUNG_S = 1.0\n"
)
"""Shorter deadlines, still longer than a busy machine's pauses."""
LIE = pb.AllocateResponse(
    container_responses=[
        pb.ContainerAllocateResponse(devices=[pb.DeviceSpec(container_path="/c", host_path="../../etc/shadow")])
    ]
)


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with ActorProcess("resources", None, ("pod_workers", "node", "status"), prelude=QUICK) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


@pytest.fixture
def patient() -> Iterator[ActorProcess]:
    """It waits for plugins as long as a test lets them hang."""
    prelude = "from actors.resources.devices import plugin; plugin.PREFER_S = plugin.ALLOCATE_S = 60.0\n"
    with ActorProcess("resources", None, ("pod_workers", "node", "status"), prelude=prelude) as process:
        process.tell(SetPods(pods=(), full=True))
        yield process


def directory(actor: ActorProcess) -> Path:
    return Path(actor.settings.root_dir) / "device-plugins"


def new_plugin(actor: ActorProcess, **fields: Any) -> Plugin:
    wait_until_served(actor)
    return Plugin(directory(actor), GPU, **fields)


def wait_until_served(actor: ActorProcess, before: int = 0) -> None:
    """Until plugins can register. `before`: time of the socket of an incarnation that was killed."""
    path = directory(actor) / "kubelet.sock"

    def is_served() -> bool:
        with suppress(FileNotFoundError):  # the next incarnation replaces the socket
            found = path.stat()
            return stat.S_ISSOCK(found.st_mode) and found.st_ctime_ns != before
        return False

    wait_for(is_served, 20, "registrations are served")


def restart(actor: ActorProcess, *pods: Pod) -> None:
    """kill -9, the next incarnation, and what pod_workers sends it. Wait until plugins can register again."""
    before = (directory(actor) / "kubelet.sock").stat().st_ctime_ns
    actor.restart()
    actor.tell(SetPods(pods=pods, full=True))
    wait_until_served(actor, before)


@pytest.fixture
def plugin(actor: ActorProcess) -> Iterator[Plugin]:
    one = new_plugin(actor).start()
    wait_for(lambda: told(actor) == (2, 2), 20, "its devices are known")
    yield one
    one.close()


@contextmanager
def closing(*plugins: Plugin) -> Iterator[None]:
    try:
        yield
    finally:
        for one in plugins:
            one.close()


def told(actor: ActorProcess, resource: str = GPU) -> tuple[int, int] | None:
    """(capacity, allocatable) as node was told last."""
    messages = actor.peers["node"].of(SetDevices)
    if not messages or resource not in messages[-1].capacity:
        return None
    return messages[-1].capacity[resource], messages[-1].allocatable[resource]


def problem(actor: ActorProcess) -> str:
    """The answer for /healthz."""
    try:
        actor.ask(CheckDevicePlugins())
    except Refused as refused:
        return refused.message
    return ""


def test_actor_says_whether_plugins_can_register(actor: ActorProcess) -> None:
    wait_for(lambda: not problem(actor), 20, "it serves")
    shutil.rmtree(directory(actor))
    directory(actor).write_text("no directory")
    actor.restart()
    assert problem(actor) == "device plugin registration gRPC server failed and no device plugins can register"
    directory(actor).unlink()
    wait_for(lambda: not problem(actor), 30, "it is tried again")


def admit(actor: ActorProcess, subject: Pod) -> None:
    actor.ask(AdmitPod(pod=subject), 20)


def admit_soon(actor: ActorProcess, subject: Pod) -> None:
    """Admit, as pod_workers does: again while it is refused for now."""

    def admitted() -> bool:
        try:
            admit(actor, subject)
        except Refused as refusal:
            if not refusal.retry:
                raise
            return False
        return True

    wait_for(admitted, 30)


def refusal(actor: ActorProcess, subject: Pod) -> Refused:
    with pytest.raises(Refused) as caught:
        admit(actor, subject)
    return caught.value


def grant(actor: ActorProcess, subject: Pod, name: str = "c") -> Grant:
    return actor.ask(GetGrant(pod=subject, container=name), 20).grant


def devices_of(actor: ActorProcess, subject: Pod, name: str = "c") -> str:
    return grant(actor, subject, name).environment["DEVICES"]


def one(uid: str, count: int = 1) -> Pod:
    return pod(uid, container("c", count))


def test_a_container_is_granted_what_the_plugin_answers(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("u", 2))
    found = grant(actor, one("u", 2))
    assert found.environment == {"DEVICES": "d0,d1"}
    assert [(d.host_path, d.container_path, d.permissions) for d in found.devices] == [("/dev/null", "/dev/test", "rw")]
    assert [(m.container_path, m.read_only) for m in found.mounts] == [("/test", True)]
    assert found.annotations == {"vendor.test/devices": "2"}


def test_devices_are_freed_with_their_pod_only(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("a", 2))
    rejected = refusal(actor, one("b"))
    assert (rejected.retry, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert "requested number of devices unavailable for vendor.test/gpu. Requested: 1, Available: 0" in rejected.message
    actor.tell(ReleasePod(pod_uid="a"))
    admit(actor, one("b"))


def test_a_plugin_prefers_devices_and_prepares_each_start(actor: ActorProcess) -> None:
    plugin = new_plugin(actor, prefers=("d1", "x"), pre_start=True).start()
    try:
        wait_for(lambda: told(actor) == (2, 2), 20)
        admit(actor, one("u"))
        assert plugin.of("PreStartContainer") == []
        assert [devices_of(actor, one("u")) for _ in range(2)] == ["d1", "d1"]
        assert [list(each.devices_ids) for each in plugin.of("PreStartContainer")] == [["d1"], ["d1"]]
    finally:
        plugin.close()


def test_init_containers_hand_their_devices_on(actor: ActorProcess, plugin: Plugin) -> None:
    subject = pod("u", container("c", 2), init=(container("i", 1),))
    admit(actor, subject)
    assert (devices_of(actor, subject, "i"), devices_of(actor, subject)) == ("d0", "d0,d1")


def test_health_changes_reach_the_node(actor: ActorProcess, plugin: Plugin) -> None:
    plugin.relist(d0="Healthy", d1="Unhealthy", d2="Healthy")
    wait_for(lambda: told(actor) == (3, 2), 20)
    plugin.relist()
    wait_for(lambda: told(actor) == (0, 0), 20)


def test_a_repeated_list_tells_the_node_nothing(actor: ActorProcess, plugin: Plugin) -> None:
    before = len(actor.peers["node"].of(SetDevices))
    for _ in range(5):
        plugin.relist(d1="Healthy", d0="Healthy")
    plugin.relist(d0="Healthy")
    wait_for(lambda: told(actor) == (1, 1), 20)
    assert len(actor.peers["node"].of(SetDevices)) == before + 1


def test_lists_that_flap_are_taken_more_and_more_rarely(actor: ActorProcess, plugin: Plugin) -> None:
    before = len(actor.peers["node"].of(SetDevices))
    stop = threading.Event()

    def flap() -> None:
        while not stop.wait(0.25):
            plugin.relist(d0="Healthy")
            plugin.relist(d0="Unhealthy")

    flapping = threading.Thread(target=flap)
    flapping.start()
    try:
        stop.wait(6)
    finally:
        stop.set()
        flapping.join()
    plugin.relist(d0="Healthy", d1="Healthy", d2="Healthy")
    wait_for(lambda: told(actor) == (3, 3), 60, "the last list is taken")
    assert 2 <= len(actor.peers["node"].of(SetDevices)) - before <= 12


def test_assignments_survive_a_kill_without_the_plugin(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("u"))
    before = grant(actor, one("u"))
    plugin.close()
    actor.restart()
    admit(actor, one("u"))
    assert grant(actor, one("u")) == before


def test_after_a_kill_a_new_pod_waits_for_the_plugin(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("a"))
    restart(actor, one("a"))
    waits = refusal(actor, one("b"))
    assert (waits.retry, waits.message) == (True, f"the device plugin of {GPU} has not registered")
    plugin.close()
    plugin.start()
    admit_soon(actor, one("b"))
    assert {devices_of(actor, one("a")), devices_of(actor, one("b"))} == {"d0", "d1"}


def test_after_a_reboot_the_plugin_allocates_again(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("u"))
    path = directory(actor) / checkpoint.FILE
    before = (directory(actor) / "kubelet.sock").stat().st_ctime_ns
    actor.kill()
    holdings, registered = checkpoint.decode(path.read_bytes(), "other boot")
    path.write_bytes(checkpoint.encode(holdings, dict.fromkeys(registered, ()), "other boot"))
    actor.start()
    actor.tell(SetPods(pods=(one("u"),), full=True))
    assert refusal(actor, one("u")).retry
    wait_until_served(actor, before)
    plugin.close()
    plugin.start()
    admit_soon(actor, one("u"))
    assert [list(each.container_requests[0].devices_ids) for each in plugin.of("Allocate")] == [["d0"], ["d0"]]


def test_the_capacity_stays_while_the_plugin_is_away(actor: ActorProcess, plugin: Plugin) -> None:
    plugin.end_lists()
    wait_for(lambda: told(actor) == (2, 0), 20)
    assert refusal(actor, one("u")).retry
    plugin.register()
    wait_for(lambda: told(actor) == (2, 2), 20)
    admit(actor, one("u"))


def test_a_second_registration_replaces_the_first(actor: ActorProcess, plugin: Plugin) -> None:
    other = new_plugin(actor, endpoint="other.sock", devices={"e0": "Healthy"}).start()
    try:
        wait_for(lambda: told(actor) == (1, 1), 20)
        plugin.relist(d0="Unhealthy")
        plugin.close()
        admit(actor, one("u"))
        assert devices_of(actor, one("u")) == "e0"
        assert told(actor) == (1, 1)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("rpc", "fault", "retry"),
    [
        ("Allocate", Fault(code="UNKNOWN"), False),
        ("Allocate", Fault(code="UNAVAILABLE"), True),
        ("Allocate", Fault(hang=True), True),
        ("Allocate", Fault(answer=pb.AllocateResponse()), False),
        ("Allocate", Fault(answer=LIE), False),
        ("GetPreferredAllocation", Fault(code="INTERNAL"), False),
        ("GetPreferredAllocation", Fault(hang=True), True),
    ],
)
def test_a_failed_call_rejects_or_lets_wait(actor: ActorProcess, rpc: str, fault: Fault, retry: bool) -> None:
    plugin = new_plugin(actor, prefers=("d1",), faults={rpc: fault}).start()
    try:
        wait_for(lambda: told(actor) == (2, 2), 20)
        assert refusal(actor, one("u")).retry is retry
        plugin.release.set()
        plugin.faults.clear()
        admit_soon(actor, one("u", 2))
        assert devices_of(actor, one("u", 2)) == "d0,d1"
    finally:
        plugin.close()


def test_a_plugins_whole_reason_is_told(actor: ActorProcess) -> None:
    reason = f"{300 * 'x'}: reboot the node"
    fault = Fault(code="UNKNOWN", details=reason)
    plugin = new_plugin(actor, pre_start=True, faults={"Allocate": fault, "PreStartContainer": fault}).start()
    try:
        wait_for(lambda: told(actor) == (2, 2), 20)
        assert reason in refusal(actor, one("u")).message
        del plugin.faults["Allocate"]
        admit_soon(actor, one("u"))
        with pytest.raises(Refused, match=reason):
            grant(actor, one("u"))
    finally:
        plugin.close()


def test_only_containers_before_a_failed_call_count_as_aligned() -> None:
    settings = Settings(topology_manager_policy="single-numa-node")
    with ActorProcess("resources", settings, ("pod_workers", "node", "status"), prelude=QUICK + MACHINE) as actor:
        actor.tell(SetPods(pods=(), full=True))
        plugin = new_plugin(actor, faults={"Allocate": Fault(code="UNKNOWN")}).start()
        try:
            wait_for(lambda: told(actor) == (2, 2), 20)
            mixed = pod("u", container("a", 0), container("b"), container("c", 0))
            assert not refusal(actor, mixed).retry
            samples = actor.ask(GetMetrics()).samples["kubelet_container_aligned_compute_resources_count"]
            assert dict(samples)["container", "numa_node"] == (1.0,)
        finally:
            plugin.close()


@contextmanager
def admitting(actor: ActorProcess, subject: Pod) -> Iterator[Future[None]]:
    """The pod is being admitted meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(admit, actor, subject)


@pytest.mark.parametrize("rpc", ["Allocate", "GetPreferredAllocation"])
def test_a_slow_plugin_delays_its_own_pod_only(patient: ActorProcess, rpc: str) -> None:
    slow = new_plugin(patient, prefers=("d1",), faults={rpc: Fault(hang=True)}).start()
    other = new_plugin(patient, endpoint="other.sock")
    other.resource = "vendor.test/other"
    other.start()
    try:
        wait_for(lambda: told(patient) == told(patient, other.resource) == (2, 2), 20)
        with admitting(patient, one("slow")) as first:
            wait_for(lambda: slow.of(rpc), 20)
            slow.faults.clear()
            admit(patient, one("quick"))
            admit(patient, pod("other", container("c", 1, other.resource)))
            waits = refusal(patient, one("third"))
            assert not first.done()
            states = len(patient.peers["pod_workers"].of(ResourcesState))
            slow.release.set()
            first.result(20)
        assert (waits.retry, "other pods are being admitted" in waits.message) == (True, True)
        wait_for(
            lambda: len(patient.peers["pod_workers"].of(ResourcesState)) > states, 20, "waiting pods are tried again"
        )
        assert {devices_of(patient, one("slow")), devices_of(patient, one("quick"))} == {"d0", "d1"}
        assert not refusal(patient, one("third")).retry
    finally:
        slow.close()
        other.close()


def test_a_pod_released_while_its_plugin_works_gets_nothing(patient: ActorProcess) -> None:
    plugin = new_plugin(patient, faults={"Allocate": Fault(hang=True)}).start()
    try:
        wait_for(lambda: told(patient) == (2, 2), 20)
        with admitting(patient, one("gone", 2)) as first:
            wait_for(lambda: plugin.of("Allocate"), 20)
            patient.tell(ReleasePod(pod_uid="gone"))
            plugin.faults.clear()
            admit(patient, one("next", 2))
            plugin.release.set()
            with pytest.raises(Refused, match="released"):
                first.result(20)
        assert devices_of(patient, one("next", 2)) == "d0,d1"
    finally:
        plugin.close()


@pytest.mark.parametrize("fault", [Fault(code="INTERNAL"), Fault(hang=True)])
def test_a_failed_pre_start_fails_this_start_only(actor: ActorProcess, fault: Fault) -> None:
    plugin = new_plugin(actor, pre_start=True, faults={"PreStartContainer": fault}).start()
    try:
        wait_for(lambda: told(actor) == (2, 2), 20)
        admit(actor, one("u"))
        with pytest.raises(Refused, match="PreStartContainer rpc failed") as caught:
            grant(actor, one("u"))
        assert caught.value.retry
        plugin.faults.clear()
        assert devices_of(actor, one("u")) == "d0"
    finally:
        plugin.close()


def test_a_start_removes_sockets_and_nothing_else(actor: ActorProcess) -> None:
    wait_until_served(actor)
    actor.kill()
    here = directory(actor)
    before = (here / "kubelet.sock").stat().st_ctime_ns
    outside = Path(actor.dir) / "outside.sock"
    with socket.socket(socket.AF_UNIX) as stale, socket.socket(socket.AF_UNIX) as foreign:
        stale.bind(str(here / "stale.sock"))
        foreign.bind(str(outside))
    (here / "link.sock").symlink_to(outside)
    (here / "dangling").symlink_to("nowhere")
    (here / "DEPRECATION").write_text("kept")
    (here / "dir").mkdir()
    actor.start()
    wait_until_served(actor, before)
    assert {path.name for path in here.iterdir()} - {checkpoint.FILE} == {
        "kubelet.sock", "dangling", "DEPRECATION", "dir"
    }  # fmt: skip
    assert outside.is_socket()


def test_a_damaged_checkpoint_is_set_aside(actor: ActorProcess) -> None:
    wait_until_served(actor)
    actor.kill()
    path = directory(actor) / checkpoint.FILE
    path.write_bytes(b'{"Data":')
    actor.start()
    assert path.with_name(f"{path.name}.damaged").read_bytes() == b'{"Data":'


def spawn(actor: ActorProcess) -> subprocess.Popen[bytes]:
    """A plugin in a process of its own, with 4 devices."""
    command = [sys.executable, "-m", "tests.resources.devices.device_plugin", str(directory(actor)), GPU, "4"]
    return subprocess.Popen(command)


@pytest.mark.timeout(300)
def test_kills_of_actor_and_plugin_give_no_device_twice(actor: ActorProcess) -> None:
    wait_until_served(actor)
    dice, process, running = random.Random(7), spawn(actor), dict[str, Pod]()
    try:
        wait_for(lambda: told(actor) == (4, 4), 30)
        for number in range(12):
            subject = one(f"u{number}")
            admit_soon(actor, subject)
            running[subject.metadata.uid] = subject
            match dice.randrange(4):
                case 0:
                    restart(actor, *running.values())
                case 1:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process = spawn(actor)
            held = [devices_of(actor, each) for each in running.values()]
            assert len(set(held)) == len(held)
            if len(running) == 4:
                gone = dice.choice(sorted(running))
                del running[gone]
                actor.tell(ReleasePod(pod_uid=gone))
    finally:
        process.kill()
        process.wait()


def test_unknown_extended_resources_are_the_clusters(actor: ActorProcess) -> None:
    subject = pod("u", container("c", 1, "cluster.test/license"))
    admit(actor, subject)
    assert grant(actor, subject) == Grant()
    with pytest.raises(ActorError):
        grant(actor, subject, "none")
    assert actor.ask(Describe()).name == "resources"


def test_a_checkpoint_too_large_to_read_gives_no_device_away(actor: ActorProcess, plugin: Plugin) -> None:
    admit(actor, one("a"))
    path = directory(actor) / checkpoint.FILE
    actor.kill()
    os.truncate(path, checkpoint.MOST_BYTES + 1)
    before = (directory(actor) / "kubelet.sock").stat().st_ctime_ns
    actor.start()
    actor.tell(SetPods(pods=(one("a"),), full=True))
    wait_until_served(actor, before)
    plugin.close()
    told_before = len(actor.peers["node"].of(SetDevices))
    plugin.start()
    wait_for(lambda: len(actor.peers["node"].of(SetDevices)) > told_before and told(actor) == (2, 2), 20)
    waits = refusal(actor, one("b"))
    assert waits.retry
    assert "1 pods of before may hold devices" in waits.message
    assert path.stat().st_size > checkpoint.MOST_BYTES, "the next start needs to know it, too"
    actor.tell(ReleasePod(pod_uid="a"))
    wait_for(lambda: path.stat().st_size < checkpoint.MOST_BYTES, 20)


def test_an_answer_too_large_for_the_checkpoint_is_refused(actor: ActorProcess) -> None:
    texts = {f"V{number}": "x" * 100_000 for number in range(3)}
    large = pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs=texts)])
    plugin = new_plugin(actor, faults={"Allocate": Fault(answer=large)}).start()
    try:
        wait_for(lambda: told(actor) == (2, 2), 20)
        refused = refusal(actor, one("u"))
        assert not refused.retry
        assert "grants 300" in refused.message
    finally:
        plugin.close()
