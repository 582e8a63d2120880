"""Graceful node shutdown: the order of pods, and the reaction to logind's signals."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from jeepney import DBusErrorResponse
from msgspec.structs import replace

from actors._host.node.shutdown import ended_by_shutdown
from actors.node.shutdown import policy, times
from actors.node.shutdown.logind import Logind
from actors.node.shutdown.policy import Group, PodEnd
from proto.agent.actor import Describe, GetMetrics
from proto.agent.settings import ShutdownGrace
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerState, PodWorkerStates, SetNodeShutdown
from proto.pods.status import Flush, Flushed
from proto.v1 import ObjectMeta, Pod, PodSpec, PodStatus
from proto.wire.errors import Refused
from proto.wire.message import Done, Message
from tests.harness import Stalls, wait_for
from tests.kube.faulty_server import FaultyServer
from tests.node.fake_logind import FakeLogind
from tests.node.node_actor import Server, World, world

STATIC = {"kubernetes.io/config.source": "file"}
GRACES = (ShutdownGrace(priority=0, grace_s=20), ShutdownGrace(priority=2_000_000_000, grace_s=10))


def row(
    uid: str,
    priority: int = 0,
    grace_s: int | None = None,
    stage: str = "sync",
    *,
    released: bool = False,
    **meta: object,
) -> PodWorkerState:
    pod = Pod(
        metadata=ObjectMeta(name=uid, namespace="ns", uid=uid, **meta),  # type: ignore[arg-type]
        spec=PodSpec(containers=(), priority=priority, termination_grace_period_seconds=grace_s),
    )
    static = "annotations" in meta
    return PodWorkerState(
        uid=uid,
        namespace="ns",
        name=uid,
        stage=stage,  # type: ignore[arg-type]
        released=released,
        deleted=False,
        static=static,
        pod=pod,
    )


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([], []),
        (
            [row("a"), row("b", grace_s=5)],
            [Group(0, 20, (PodEnd("a", "ns/a", 20, False), PodEnd("b", "ns/b", 5, False)))],
        ),
        (
            [row("c", 2_000_001_000), row("a")],
            [
                Group(0, 20, (PodEnd("a", "ns/a", 20, False),)),
                Group(2_000_000_000, 10, (PodEnd("c", "ns/c", 10, False),)),
            ],
        ),
        ([row("below", -5, 40)], [Group(0, 20, (PodEnd("below", "ns/below", 20, False),))]),
        ([row("over", stage="terminated")], []),
        ([row("s", annotations=STATIC)], [Group(0, 20, (PodEnd("s", "ns/s", 20, True),))]),
    ],
)
def test_pods_end_by_priority_in_their_own_or_the_groups_time(pods: list[PodWorkerState], found: list[Group]) -> None:
    assert policy.groups(GRACES, pods) == found


def test_without_grace_periods_no_pod_ends_and_periods_add_up() -> None:
    assert policy.groups((), [row("a")]) == []
    assert policy.total_s(GRACES) == 30
    assert "InhibitDelayMaxSec=30\n" in policy.logind_drop_in(30.0)


@pytest.mark.parametrize(
    ("reason", "annotations", "over"),
    [
        ("Terminated", STATIC, True),
        ("NodeShutdown", STATIC, True),
        ("Evicted", STATIC, False),
        ("Terminated", {}, False),
    ],
)
def test_static_pods_end_is_over_with_the_shutdown(reason: str, annotations: dict[str, str], over: bool) -> None:
    meta, spec = ObjectMeta(name="p", annotations=annotations), PodSpec(containers=())
    assert ended_by_shutdown(Pod(metadata=meta, spec=spec, status=PodStatus(reason=reason))) is over


class PodWorkers:
    """Two pods that end after EvictPod, when the test allows it."""

    def __init__(self) -> None:
        self.rows = {"web": row("web", 0, 30), "dns": row("dns", 2_000_000_000, 30)}
        self.told: list[EvictPod] = []
        self.told_at: list[float] = []
        """Monotonic seconds."""
        self.looks = 0
        self.sources_ready = True

    def list(self, _: ListPodWorkers) -> Message:
        self.looks += 1
        return PodWorkerStates(pods=tuple(self.rows.values()), sources_ready=self.sources_ready)

    def evict(self, request: EvictPod) -> Message:
        if request.pod_uid not in self.rows:
            raise Refused("NotFound", "no such pod", retry=False)
        self.rows[request.pod_uid] = replace(self.rows[request.pod_uid], stage="terminating")
        self.told_at.append(time.monotonic())
        self.told.append(request)  # last: tests wait for it in another thread, and change the rows then
        return Done()


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, FakeLogind, PodWorkers]]:
    with FakeLogind() as logind, FaultyServer(Server()) as server:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        workers = PodWorkers()
        answers = {ListPodWorkers: workers.list, EvictPod: workers.evict}
        with world(server, tmp_path, peers={"pod_workers": answers, "status": {}}, shutdown_grace=GRACES) as one:
            one.process.peers["status"].answers[Flush] = lambda _: Flushed()
            wait_for(lambda: one.ready() and logind.held(), 20, "the lock is held")
            yield one, logind, workers


@pytest.mark.needs("dbus-daemon")
def test_machine_waits_for_pods_in_order_and_their_last_status(
    going: tuple[World, FakeLogind, PodWorkers],
) -> None:
    one, logind, workers = going
    assert logind.locks == [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    began = time.monotonic()
    logind.shutdown(True)
    wait_for(lambda: [told.pod_uid for told in workers.told] == ["web"], 20)
    (told,) = workers.told
    assert (told.reason, told.message, told.with_machine) == (
        "Terminated", "Pod was terminated in response to imminent node shutdown.", False,
    )  # fmt: skip
    # The whole seconds that are left: the file of the shutdown's times comes first, on a disk that may be slow.
    assert 20 - (workers.told_at[0] - began) <= told.grace_period_s <= 20
    wait_for(lambda: not one.ready(), 10, "the Node is not Ready")
    assert one.node["status"]["conditions"][-1]["message"] == "node is shutting down"
    assert one.process.peers["pod_workers"].of(SetNodeShutdown)[-1].shutting_down
    wait_for(lambda: "Shutdown" in one.reasons(), 10)
    workers.rows["web"] = row("web", 0, 30, "terminated")
    looks = workers.looks
    wait_for(lambda: workers.looks >= looks + 3 or len(workers.told) > 1, 20, "it waits for the volumes")
    assert len(workers.told) == 1
    workers.rows["web"] = row("web", 0, 30, "terminated", released=True)
    wait_for(lambda: [told.pod_uid for told in workers.told] == ["web", "dns"], 20)
    assert workers.told[1].grace_period_s == 10
    assert logind.held()
    assert not one.process.peers["status"].of(Flush)
    del workers.rows["dns"]
    wait_for(lambda: not logind.held(), 20, "the machine may go")
    assert one.process.peers["status"].of(Flush)


@pytest.mark.needs("dbus-daemon")
def test_restarted_pod_workers_is_asked_again_for_the_rest_of_the_grace(
    going: tuple[World, FakeLogind, PodWorkers],
) -> None:
    """It does not know that a static pod ends, and goes on to run it."""
    _, logind, workers = going
    logind.shutdown(True)
    wait_for(lambda: len(workers.told) == 1, 20)
    wait_for(lambda: time.monotonic() > workers.told_at[0] + 1.0, 20, "some of the grace period is over")
    workers.rows["web"] = row("web", 0, 30)
    wait_for(lambda: len(workers.told) == 2, 20, "it is asked again")
    assert [told.pod_uid for told in workers.told] == ["web", "web"]
    assert workers.told[1].grace_period_s in range(1, 20)
    workers.rows.clear()
    wait_for(lambda: not logind.held(), 20, "the machine may go")


@pytest.mark.needs("dbus-daemon")
def test_pods_that_a_new_pod_workers_lacks_are_waited_for(going: tuple[World, FakeLogind, PodWorkers]) -> None:
    _, logind, workers = going
    logind.shutdown(True)
    wait_for(lambda: len(workers.told) == 1, 20)
    rows = dict(workers.rows)
    workers.sources_ready = False
    workers.rows.clear()
    looks = workers.looks
    wait_for(lambda: workers.looks >= looks + 5 or not logind.held(), 20)
    assert logind.held()
    workers.rows |= rows
    workers.sources_ready = True
    del workers.rows["web"]
    wait_for(lambda: [told.pod_uid for told in workers.told] == ["web", "dns"], 20, "the next group")
    workers.rows.clear()
    wait_for(lambda: not logind.held(), 20, "the machine may go")


@pytest.mark.needs("dbus-daemon")
def test_pods_end_before_the_machine_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeLogind() as logind, FaultyServer(Server()) as server:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        workers = PodWorkers()
        peers = {"pod_workers": {ListPodWorkers: workers.list, EvictPod: workers.evict}, "status": {}}
        with world(server, tmp_path, peers=peers, shutdown_grace=GRACES, kubeconfig="") as one:
            one.process.peers["status"].answers[Flush] = lambda _: Flushed()
            wait_for(logind.held, 20, "the lock is held")
            logind.shutdown(True)
            wait_for(lambda: [told.pod_uid for told in workers.told] == ["web"], 20)
            assert one.process.peers["pod_workers"].of(SetNodeShutdown)[-1].shutting_down
            workers.rows.clear()
            wait_for(lambda: not logind.held(), 20, "the machine may go")
            wait_for(lambda: "Shutdown" in one.reasons(), 10, "its event")
        assert not server.behind.kept  # type: ignore[attr-defined]


def state_file(one: World) -> Path:
    return Path(one.process.settings.root_dir, "graceful_node_shutdown_state")


def gauges(one: World) -> list[float]:
    """Unix seconds of the begin and the end of the last shutdown."""
    samples = one.process.ask(GetMetrics()).samples
    names = (f"kubelet_graceful_shutdown_{part}_time_seconds" for part in ("start", "end"))
    return [samples[name][0][1][0] if name in samples else 0.0 for name in names]


@pytest.mark.needs("dbus-daemon")
def test_times_of_a_shutdown_are_in_a_file_and_survive_a_kill(going: tuple[World, FakeLogind, PodWorkers]) -> None:
    one, logind, workers = going
    assert not state_file(one).exists()
    began = time.time()
    logind.shutdown(True)
    wait_for(lambda: workers.told, 20)
    assert state_file(one).stat().st_mode & 0o777 == 0o644
    found = times.decode(state_file(one).read_bytes())
    assert began - 1 < found.began < time.time() + 1
    assert found.ended == 0.0
    assert gauges(one) == [pytest.approx(found.began, abs=1e-5), 0.0]
    workers.rows.clear()
    wait_for(lambda: not logind.held(), 20, "the machine may go")
    over = times.decode(state_file(one).read_bytes())
    assert (over.began, over.ended >= over.began) == (found.began, True)
    logind.restart()
    wait_for(one.ready, 20, "the machine has started again")
    one.process.restart()
    wait_for(lambda: gauges(one) == [over.began, over.ended], 10, "the gauges of the last shutdown")


@pytest.mark.needs("dbus-daemon")
@pytest.mark.parametrize("content", [b"{", b"x" * 100_000, None])
def test_unusable_file_of_times_does_not_hinder_a_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    """None: a FIFO."""
    with FakeLogind() as logind, FaultyServer(Server()) as server:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        root = tmp_path / "root"
        root.mkdir()
        if content is None:
            os.mkfifo(root / "graceful_node_shutdown_state")
        else:
            (root / "graceful_node_shutdown_state").write_bytes(content)
        workers = PodWorkers()
        peers = {"pod_workers": {ListPodWorkers: workers.list, EvictPod: workers.evict}, "status": {}}
        settings = {"shutdown_grace": GRACES, "kubeconfig": "", "root_dir": str(root)}
        with world(server, tmp_path, peers=peers, **settings) as one:
            one.process.peers["status"].answers[Flush] = lambda _: Flushed()
            wait_for(logind.held, 20, "the lock is held")
            logind.shutdown(True)
            wait_for(lambda: workers.told, 20)
            assert times.decode(state_file(one).read_bytes()).began > 0


@pytest.mark.needs("dbus-daemon")
def test_without_priorities_of_pods_there_is_no_file_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeLogind() as logind, FaultyServer(Server()) as server:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        workers = PodWorkers()
        peers = {"pod_workers": {ListPodWorkers: workers.list, EvictPod: workers.evict}, "status": {}}
        settings = {"shutdown_grace": GRACES, "kubeconfig": "", "keep_shutdown_times": False}
        with world(server, tmp_path, peers=peers, **settings) as one:
            one.process.peers["status"].answers[Flush] = lambda _: Flushed()
            wait_for(logind.held, 20, "the lock is held")
            logind.shutdown(True)
            wait_for(lambda: workers.told, 20)
            workers.rows.clear()
            wait_for(lambda: not logind.held(), 20, "the machine may go")
            assert not state_file(one).exists()


@pytest.mark.needs("dbus-daemon")
def test_drop_in_makes_logind_allow_the_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in = tmp_path / "logind.conf.d" / "99-kubelet.conf"
    monkeypatch.setattr("actors.node.shutdown.logind.DROP_IN", drop_in)
    with FakeLogind(5.0, drop_in) as machine:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.address)
        follower = threading.Thread(target=follow, args=(Logind(30.0, lambda *_: None, lambda _: None),))
        follower.start()
        wait_for(machine.held, 20, "the lock is held")
        assert machine.longest_s == 30.0
        assert drop_in.read_text() == "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n"
    follower.join(20)
    assert not follower.is_alive()


@pytest.mark.needs("dbus-daemon")
def test_refused_reload_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_in = tmp_path / "logind.conf.d" / "99-kubelet.conf"
    for name, value in (("DROP_IN", drop_in), ("RELOADED_S", 0.0), ("RECHECK_S", 0.01)):
        monkeypatch.setattr(f"actors.node.shutdown.logind.{name}", value)
    problems: list[str] = []
    with FakeLogind(5.0, drop_in) as machine:
        machine.refused_reloads = 2
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.address)
        follower = threading.Thread(target=follow, args=(Logind(30.0, lambda *_: None, problems.append),))
        follower.start()
        wait_for(machine.held, 20, "the lock is held")
        assert machine.reloads == 1
        wait_for(lambda: ["allows 5 s" in problem for problem in problems] == [True, False], 20, "no problem is left")
    follower.join(20)
    assert not follower.is_alive()


@pytest.mark.needs("dbus-daemon")
@pytest.mark.parametrize("writable", [True, False])
def test_refused_delay_is_configured_once_and_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, writable: bool
) -> None:
    drop_in = tmp_path / "logind.conf.d" / "99-kubelet.conf"
    if not writable:
        drop_in.parent.touch()
    for name, value in (("DROP_IN", drop_in), ("RELOADED_S", 0.0), ("RECHECK_S", 0.01)):
        monkeypatch.setattr(f"actors.node.shutdown.logind.{name}", value)
    caplog.set_level("INFO", "actors.node.shutdown.logind")
    problems: list[str] = []
    subject = Logind(30.0, lambda *_: None, problems.append)

    def reconnect() -> None:
        with suppress(OSError, EOFError):
            while True:
                with suppress(DBusErrorResponse):  # an answer while the name has no owner
                    subject.follow()

    with FakeLogind(5.0, drop_in) as machine:
        machine.overruled = True
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.address)
        follower = threading.Thread(target=reconnect)
        follower.start()
        wait_for(lambda: machine.looks > 10, 20, "several looks")
        written = drop_in.stat().st_mtime_ns if writable else 0
        machine.restart()
        wait_for(lambda: len(problems) > 1, 20, "the new process is asked")
        assert [machine.reloads, len(caplog.messages)] == ([1, 1] if writable else [0, 0])
        assert not writable or drop_in.stat().st_mtime_ns == written
        assert ("allows 5 s, not the 30 s" if writable else "cannot write /") in problems[0]
        assert not machine.held()
        machine.longest_s = 30.0
        wait_for(lambda: machine.held() and problems[-1] == "", 20, "the lock is held")
        assert len(set(problems)) == 2
    follower.join(20)
    assert not follower.is_alive()


@pytest.mark.needs("dbus-daemon")
def test_cancelled_shutdown_admits_pods_and_takes_a_new_lock(
    going: tuple[World, FakeLogind, PodWorkers],
) -> None:
    one, logind, workers = going
    logind.shutdown(True)
    wait_for(lambda: workers.told, 20)
    logind.shutdown(False)
    wait_for(lambda: not one.process.peers["pod_workers"].of(SetNodeShutdown)[-1].shutting_down, 20)
    wait_for(one.ready, 20)
    wait_for(lambda: len(logind.locks) == 2 and logind.held(), 20)

    def messages() -> list[str]:
        runtime = one.process.peers["events"].of(RecordEvent)
        return [record.message for record in runtime if record.reason == "Shutdown"]

    wanted = [f"Shutdown manager detected shutdown {what}" for what in ("event", "cancellation")]
    wait_for(lambda: messages() == wanted, 10, f"{wanted}, not {messages()}")


@pytest.mark.needs("dbus-daemon")
@pytest.mark.parametrize("lost", ["logind", "bus"])
def test_shutdown_that_is_lost_with_logind_is_cancelled(going: tuple[World, FakeLogind, PodWorkers], lost: str) -> None:
    one, logind, workers = going
    logind.shutdown(True)
    wait_for(lambda: workers.told, 20)
    wait_for(lambda: not one.ready(), 10, "the Node is not Ready")
    if lost == "bus":
        logind.under_way = False
        logind.disconnect()
        logind.connect()
    else:
        logind.restart()
    wait_for(lambda: not one.process.peers["pod_workers"].of(SetNodeShutdown)[-1].shutting_down, 20)
    wait_for(one.ready, 20)
    wait_for(lambda: len(logind.locks) == 2 and logind.held(), 20, "the next shutdown waits, too")


@pytest.mark.needs("dbus-daemon")
def test_lock_is_held_again_soon_after_the_bus_is_back(going: tuple[World, FakeLogind, PodWorkers]) -> None:
    _, logind, _ = going
    logind.disconnect()
    logind.connect()
    began = time.monotonic()
    with Stalls() as machine:
        wait_for(lambda: len(logind.locks) == 2 and logind.held(), 20, "the next shutdown waits, too")
    assert time.monotonic() - began < 4 + machine.longest_s


def follow(subject: Logind) -> None:
    with suppress(OSError, EOFError):
        subject.follow()


@pytest.mark.needs("dbus-daemon")
def test_pods_ended_during_cancellation_keep_the_next_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeLogind() as machine:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", machine.address)
        told: queue.Queue[tuple[bool, int]] = queue.Queue()
        subject = Logind(30.0, lambda begins, lock: told.put((begins, lock)), lambda _: None)
        follower = threading.Thread(target=follow, args=(subject,))
        follower.start()
        wait_for(machine.held, 20, "the lock is held")
        assert told.get(timeout=20) == (False, 1)
        machine.shutdown(True)
        begins, first = told.get(timeout=20)
        assert begins
        machine.shutdown(False)
        begins, second = told.get(timeout=20)
        assert not begins
        subject.release(first)
        assert machine.held()
        subject.release(second)
        wait_for(lambda: not machine.held(), 20, "it may go")
    follower.join(20)
    assert not follower.is_alive()


def test_without_logind_a_problem_is_shown_and_node_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    with FaultyServer(Server()) as server, world(server, tmp_path, shutdown_grace=GRACES) as one:
        wait_for(one.ready, 20)
        wait_for(
            lambda: "cannot delay the machine" in one.process.ask(Describe()).state["shutdown"]["lock_problem"], 10
        )
