"""The oom actor as a process, with real OOM kills in cgroups of the tests' own; and its reader of the log."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from actors._base.messaging.bus import Bus
from actors._cgroup.hierarchy import hierarchy
from actors.oom import kernel_log
from actors.oom.kernel_log import KernelLog
from proto.agent.actor import Describe
from proto.cri import api_pb2 as pb
from proto.pods.events import RecordEvent
from proto.pods.pleg import CallRuntime, RuntimeAnswer
from proto.pods.pod_workers import ListPodWorkers, PodWorkerState, PodWorkerStates
from proto.v1 import Pod, from_dict
from tests.harness import ActorProcess, wait_for

UID = "0d2f6f4e-0000-4000-8000-000000000001"
ID = "ab" * 32
LIMIT = 16 << 20
EAT = (
    "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); data = []\n"
    "open('/proc/self/comm', 'w').write('a) pid=1,')\n"
    "while True: data.append(b'x' * 1_000_000)"
)

real = pytest.mark.needs("root", "kernel log", "cgroups")


def oom() -> ActorProcess:
    root = f"/nvoom-{uuid.uuid4().hex[:8]}"
    actor = ActorProcess(
        "oom",
        None,
        ("events", "pleg", "pod_workers"),
        cgroup_root=root,
        container_runtime_endpoint="unix:///nowhere.sock",
    )
    pod = from_dict(
        Pod, {"metadata": {"name": "web", "namespace": "ns", "uid": UID}, "spec": {"containers": [{"name": "c"}]}}
    )
    row = PodWorkerState(uid=UID, namespace="ns", name="web", stage="sync", deleted=False, static=False, pod=pod)
    actor.peers["pod_workers"].answers[ListPodWorkers] = lambda request: PodWorkerStates(
        pods=(row,) if UID in request.uids else (), sources_ready=True
    )
    listed = pb.ListContainersResponse(
        containers=[pb.Container(id=ID, labels={"io.kubernetes.container.name": "c"})]
    ).SerializeToString()
    actor.peers["pleg"].answers[CallRuntime] = lambda _: RuntimeAnswer(response=listed)
    return actor


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    actor = oom()
    top = Path(hierarchy().path("memory", actor.settings.cgroup_root) or "")
    try:
        with actor:
            yield actor
    finally:
        for directory in sorted(top.rglob("*/"), reverse=True):
            directory.rmdir()
        if top.exists():
            top.rmdir()


def kill_in(actor: ActorProcess, below: str) -> int:
    """Make the kernel kill a process in this cgroup below the actor's root; return its pid."""
    tree = hierarchy()
    path = Path(tree.path("memory", f"{actor.settings.cgroup_root}{below}") or "")
    path.mkdir(parents=True, exist_ok=True)
    if tree.unified:
        for above in reversed(path.parents):
            if (above / "cgroup.subtree_control").exists() and above != path:
                (above / "cgroup.subtree_control").write_text("+memory")
    path.joinpath("memory.max" if tree.unified else "memory.limit_in_bytes").write_text(str(LIMIT))
    eater = subprocess.Popen([sys.executable, "-c", EAT, str(path / "cgroup.procs")])
    assert eater.wait(60) == -9
    return eater.pid


def events(actor: ActorProcess) -> list[RecordEvent]:
    return actor.peers["events"].of(RecordEvent)


def caught_up(actor: ActorProcess) -> None:
    wait_for(Path(actor.settings.root_dir, "nodevisor/oom.json").exists, 10, "the end of the log is reached")


@real
def test_kill_in_a_pod_is_an_event_of_its_container(actor: ActorProcess) -> None:
    caught_up(actor)
    pid = kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    wait_for(lambda: events(actor), 10, "the event")
    (event,) = events(actor)
    assert (event.involved.kind, event.involved.name, event.involved.namespace) == ("Pod", "web", "ns")
    assert event.involved.field_path == "spec.containers{c}"
    assert (event.type, event.reason) == ("Warning", "OOMKilled")
    begin = f"Kernel killed process a) pid=1,, pid: {pid}, of container c for lack of memory. The process was using "
    assert event.message.startswith(begin)
    assert event.message.endswith("; the container used 16Mi, its memory limit is 16Mi.")
    assert abs(event.time_ns / 1e9 - os.stat(f"{actor.settings.root_dir}/nodevisor/oom.json").st_mtime) < 30


@real
def test_kill_is_reported_once_over_restarts(actor: ActorProcess) -> None:
    caught_up(actor)
    kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    wait_for(lambda: len(events(actor)) == 1, 10, "the event")
    actor.kill()
    second = kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    actor.start()
    wait_for(lambda: len(events(actor)) == 2, 10, "the kill while the actor was away")
    assert f"pid: {second}," in events(actor)[1].message
    actor.restart()
    third = kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    wait_for(lambda: len(events(actor)) == 3, 10, "only the next one follows")
    assert f"pid: {third}," in events(actor)[2].message


@real
def test_kills_before_the_first_start_are_not_reported(actor: ActorProcess) -> None:
    caught_up(actor)
    actor.kill()
    kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    Path(actor.settings.root_dir, "nodevisor/oom.json").unlink()
    actor.start()
    caught_up(actor)
    second = kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    wait_for(lambda: events(actor), 10, "the later kill")
    assert [f"pid: {second}," in event.message for event in events(actor)] == [True]


@real
@pytest.mark.parametrize("waiting", [(), (UID,)])
def test_kill_waits_for_a_pod_that_a_new_pod_workers_lacks(actor: ActorProcess, waiting: tuple[str, ...]) -> None:
    caught_up(actor)
    ready = actor.peers["pod_workers"].answers[ListPodWorkers]
    starting = PodWorkerStates(pods=(), sources_ready=bool(waiting), waiting=waiting)
    actor.peers["pod_workers"].answers[ListPodWorkers] = lambda _: starting
    kill_in(actor, f"/kubepods/burstable/pod{UID}/{ID}")
    wait_for(lambda: len(actor.peers["pod_workers"].of(ListPodWorkers)) >= 2, 10, "it is asked again")
    assert not events(actor)
    actor.peers["pod_workers"].answers[ListPodWorkers] = ready
    wait_for(lambda: events(actor), 10, "the event")
    assert events(actor)[0].involved.name == "web"


@real
def test_kill_outside_of_pods_is_counted_only(actor: ActorProcess) -> None:
    caught_up(actor)
    kill_in(actor, "/other")
    wait_for(lambda: actor.ask(Describe()).state["kills"] >= 1, 10, "the kill is seen")
    assert not actor.peers["pod_workers"].of(ListPodWorkers)


def test_machine_without_a_log_is_a_warning() -> None:
    prelude = "from actors.oom import kernel_log; kernel_log.open_log.__defaults__ = ('/dev/null',);"
    with ActorProcess("oom", None, ("events",), prelude=prelude) as actor:
        assert "cannot read /dev/kmsg" in actor.ask(Describe()).state["problem"]


def test_only_the_kernels_device_is_opened(tmp_path: Path) -> None:
    link, file, fifo = tmp_path / "link", tmp_path / "file", tmp_path / "fifo"
    link.symlink_to("/dev/kmsg")
    file.write_text("3,1,1,-;x")
    os.mkfifo(fifo)
    for path in (link, file, fifo, tmp_path / "none", Path("/dev/null")):
        with pytest.raises(OSError, match=path.name):
            kernel_log.open_log(str(path))


class Loop:
    """A bus that notes what it is asked for."""

    def __init__(self) -> None:
        self.take: Callable[[], None]
        self.later: list[Callable[[], None]] = []

    def watch_fd(self, _fd: int, callback: Callable[[], None]) -> None:
        self.take = callback

    def call_later(self, _delay_s: float, callback: Callable[[], None]) -> None:
        self.later.append(callback)


def test_log_is_told_readable_once_until_it_was_read() -> None:
    """Else each pause of a long read would queue a further one."""
    readable, writer = os.pipe()
    loop, told = Loop(), []
    log = KernelLog(readable)
    log.watch(cast("Bus", loop), 0.5, lambda: told.append(1))
    os.write(writer, b"x")
    loop.take()
    loop.take()
    assert (len(told), loop.later) == (1, [])
    log.resume()
    loop.take()
    assert len(told) == 1, "after a pause"
    loop.later.pop()()
    loop.take()
    assert len(told) == 2
    log.resume()
    log.stop()
    loop.later.pop()()
    loop.take()
    assert len(told) == 2
    os.close(readable)
    os.close(writer)


def test_overwritten_records_are_counted() -> None:
    def record(number: int) -> bytes:
        return b"6,%d,1,-;x\n" % number

    steps: list[bytes | int] = [record(1), errno.EPIPE, record(5), b"garbage", record(6), errno.EAGAIN]

    def read(_fd: int, _most: int) -> bytes:
        step = steps.pop(0)
        if isinstance(step, int):
            raise OSError(step, os.strerror(step))
        return step

    log = KernelLog(-1, read)
    found = [record.sequence for record in iter(log.next_record, None)]
    assert (found, log.lost) == ([1, 5, 6], 3)
