"""The order of a machine's shutdown in virtual time: pods end, then their volumes go, then the next group ends."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from actors.node.shutdown import manager, times
from actors.node.shutdown.times import Times
from proto.agent.settings import ShutdownGrace
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerStates
from proto.pods.status import Flush, Flushed
from proto.wire.errors import ActorDead, AskTimeout, Refused
from proto.wire.message import Done
from tests.image_gc.pure.test_histories import run
from tests.node.test_shutdown import row

NEVER = math.inf
BEGAN = 1000.0
GRACES = (ShutdownGrace(priority=0, grace_s=20), ShutdownGrace(priority=2_000_000_000, grace_s=10))


class Node:
    """The actor node with its peers. Each pod ends, and is released, so many seconds after it is asked to end."""

    def __init__(self, **pods: tuple[int, float, float]) -> None:
        """`pods`: name to (priority, seconds to its end, seconds to its release)."""
        self.now = BEGAN
        self.pods = pods
        self.asked: dict[str, float] = {}
        """Name to the time of EvictPod."""
        self.gone: set[str] = set()
        """Pods that pod_workers forgets at their release."""
        self.away: tuple[tuple[float, float], ...] = ()
        """Spans of time in which pod_workers does not answer, in seconds from the begin."""
        self.unread: tuple[tuple[float, float], ...] = ()
        """Spans of time in which pod_workers has read no source, and knows no pod."""
        self.waiting: dict[str, float] = {}
        """Name to the time until which the pod has no worker."""
        self.refused = 0
        self.flushed = self.released = 0.0
        self.disk_hangs = False
        self.written: list[tuple[float, Times]] = []
        """The files of the shutdown's times, and when they were written."""
        self.settings = SimpleNamespace(shutdown_grace=GRACES, keep_shutdown_times=True, root_dir="/none")
        self.shutdown = manager.Shutdown(self, SimpleNamespace(), lambda: None)  # type: ignore[arg-type]
        self.shutdown._logind = SimpleNamespace(release=self.release)  # type: ignore[assignment]

    def release(self, _: int) -> None:
        self.released = self.now

    def peer(self, _: str) -> Node:
        return self

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def blocking(self, timeout_s: float, _: Any, number: int, content: bytes) -> None:
        if self.disk_hangs:
            self.now += timeout_s
            raise AskTimeout("the disk hangs")
        assert number == len(self.written) + 1
        assert self.written or not self.asked, "the first file is written before any pod is asked to end"
        self.written.append((self.now, times.decode(content)))

    async def ask(self, request: Any, _: float) -> Any:
        match request:
            case Flush():
                self.flushed = self.now
                return Flushed()
            case _ if self.during(self.away):
                raise ActorDead("it has ended")
            case EvictPod() if self.row(request.pod_uid) is None:
                self.refused += 1
                raise Refused("NotFound", "no such pod", retry=False)
            case EvictPod():
                self.asked.setdefault(request.pod_uid, self.now)
                return Done()
            case ListPodWorkers():
                rows = (self.row(name) for name in self.pods)
                ready = not self.during(self.unread)
                return PodWorkerStates(
                    pods=tuple(one for one in rows if one is not None),
                    sources_ready=ready,
                    waiting=tuple(name for name in self.waiting if ready and self.lacks_worker(name)),
                )

    def during(self, spans: tuple[tuple[float, float], ...]) -> bool:
        return any(first <= self.now - BEGAN < end for first, end in spans)

    def lacks_worker(self, name: str) -> bool:
        return self.now - BEGAN < self.waiting.get(name, 0)

    def row(self, name: str) -> Any:
        priority, ends_s, released_s = self.pods[name]
        since = self.now - self.asked.get(name, NEVER)
        if (since >= released_s and name in self.gone) or self.during(self.unread) or self.lacks_worker(name):
            return None
        stage = "terminated" if since >= ends_s else "terminating" if since >= 0 else "sync"
        return row(name, priority, 30, stage, released=since >= released_s)


@pytest.fixture
def end_pods(monkeypatch: pytest.MonkeyPatch) -> Any:
    """End the pods of a node. Returns the seconds until EvictPod of each, and until the lock is released."""

    def end(node: Node) -> tuple[dict[str, float], float]:
        began = node.now
        clock = SimpleNamespace(monotonic=lambda: node.now, time=lambda: node.now)
        for module in (manager, times):
            monkeypatch.setattr(module, "time", clock)
        run(node.shutdown._end_pods(1))
        assert node.flushed == node.released - (times.WRITE_S if node.disk_hangs else 0)
        return {name: at - began for name, at in node.asked.items()}, node.released - began

    return end


SYSTEM = 2_000_000_000


@pytest.mark.parametrize("is_gone", [False, True])
def test_next_group_ends_once_the_volumes_are_unmounted(end_pods: Any, is_gone: bool) -> None:
    node = Node(web=(0, 1, 8), plain=(0, 2, 2), csi=(SYSTEM, 1, 3))
    node.gone = {"web", "csi"} if is_gone else set()
    asked, released = end_pods(node)
    assert asked == {"web": 0, "plain": 0, "csi": pytest.approx(8, abs=0.3)}
    assert released == pytest.approx(asked["csi"] + 3, abs=0.3)


def test_volumes_delay_a_shutdown_until_the_groups_period_only(end_pods: Any, caplog: pytest.LogCaptureFixture) -> None:
    asked, released = end_pods(Node(web=(0, 1, NEVER), csi=(SYSTEM, 1, NEVER)))
    assert asked == {"web": 0, "csi": pytest.approx(20, abs=0.3)}
    assert released == pytest.approx(30, abs=0.6)
    assert [one for one in caplog.messages if "in time" in one] == [
        "volumes were not unmounted in time: ns/web",
        "volumes were not unmounted in time: ns/csi",
    ]


def test_pod_killed_at_the_end_of_its_period_has_its_last_status(
    end_pods: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked, released = end_pods(Node(web=(0, 1, 1), csi=(SYSTEM, 12, NEVER)))
    assert released == pytest.approx(asked["csi"] + 12, abs=0.5)
    assert "pods did not end in time: ns/csi" in caplog.messages


@pytest.mark.parametrize("at", [0.0, 0.5, 4.0, 9.0])
def test_restart_of_pod_workers_releases_no_pod(end_pods: Any, at: float) -> None:
    node = Node(web=(0, 12, 14), csi=(SYSTEM, 1, 3))
    node.away, node.unread = ((at, at + 1),), ((at + 1, at + 3),)
    asked, released = end_pods(node)
    first = 3 if at == 0 else 0
    assert asked == {"web": pytest.approx(first, abs=0.3), "csi": pytest.approx(first + 14, abs=0.5)}
    assert released == pytest.approx(first + 17, abs=0.8)
    assert not node.refused


def test_pods_without_worker_yet_are_ended_too(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2), csi=(SYSTEM, 1, 3))
    node.unread, node.waiting = ((0, 1),), {"web": 2, "csi": 2.5}
    asked, _ = end_pods(node)
    assert asked == {"web": pytest.approx(2.5, abs=0.3), "csi": pytest.approx(4.5, abs=0.5)}


def test_pod_known_late_ends_after_those_of_its_priority(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2), late=(0, 1, 2), csi=(SYSTEM, 1, 2))
    node.waiting = {"late": 4}
    asked, _ = end_pods(node)
    assert asked == {name: pytest.approx(at, abs=0.8) for name, at in (("web", 3), ("late", 5), ("csi", 7))}


def test_sources_that_are_never_read_delay_within_the_period(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2))
    node.unread = ((0, NEVER),)
    asked, released = end_pods(node)
    assert (asked, released) == ({}, pytest.approx(manager.SETTLE_S, abs=0.3))


def test_late_first_group_leaves_the_period_of_the_next(end_pods: Any) -> None:
    node = Node(web=(0, 1, NEVER), csi=(SYSTEM, 1, NEVER))
    node.unread = ((0, 5),)
    asked, released = end_pods(node)
    assert asked == {"web": pytest.approx(5, abs=0.3), "csi": pytest.approx(20, abs=0.3)}
    assert released == pytest.approx(30, abs=0.6)


def test_silent_pod_workers_takes_the_whole_period(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2))
    node.away = ((0, NEVER),)
    assert end_pods(node) == ({}, pytest.approx(30, abs=0.3))


def test_times_are_kept_before_pods_end_and_after(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2), csi=(SYSTEM, 1, 3))
    _, released = end_pods(node)
    ended = BEGAN + released
    assert node.written == [(BEGAN, Times(BEGAN)), (ended, Times(BEGAN, pytest.approx(ended, abs=1e-5)))]


def test_hung_disk_does_not_delay_the_last_group(end_pods: Any) -> None:
    node = Node(web=(0, 1, NEVER), csi=(SYSTEM, 1, 2))
    node.disk_hangs = True
    asked, released = end_pods(node)
    assert asked == {"web": times.WRITE_S, "csi": pytest.approx(20, abs=0.3)}
    assert released == pytest.approx(22 + times.WRITE_S, abs=0.6)


def test_pods_without_grace_are_ended_at_once(end_pods: Any) -> None:
    node = Node(web=(0, 1, 2), csi=(SYSTEM, 2, 3))
    node.shutdown._graces = tuple(replace(one, grace_s=0) for one in GRACES)
    asked, released = end_pods(node)
    assert asked == {"web": 0, "csi": 0}
    assert released == pytest.approx(2, abs=0.3)
