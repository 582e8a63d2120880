"""The order of a machine's shutdown in virtual time: pods end, then their volumes go, then the next group ends."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from actors.node.shutdown import manager
from proto.agent.settings import ShutdownGrace
from proto.pods.pod_workers import EvictPod, ListPodWorkers, PodWorkerStates
from proto.pods.status import Flush, Flushed
from proto.wire.message import Done
from tests.image_gc.pure.test_histories import run
from tests.node.test_shutdown import row

NEVER = math.inf
GRACES = (ShutdownGrace(priority=0, grace_s=20), ShutdownGrace(priority=2_000_000_000, grace_s=10))


class Node:
    """The actor node with its peers. Each pod ends, and is released, so many seconds after it is asked to end."""

    def __init__(self, **pods: tuple[int, float, float]) -> None:
        """`pods`: name to (priority, seconds to its end, seconds to its release)."""
        self.now = 1000.0
        self.pods = pods
        self.asked: dict[str, float] = {}
        """Name to the time of EvictPod."""
        self.gone: set[str] = set()
        """Pods that pod_workers forgets at their release."""
        self.flushed = self.released = 0.0
        self.settings = SimpleNamespace(shutdown_grace=GRACES)
        self.shutdown = manager.Shutdown(self, SimpleNamespace(), lambda: None)  # type: ignore[arg-type]
        self.shutdown._logind = SimpleNamespace(release=self.release)  # type: ignore[assignment]

    def release(self, _: int) -> None:
        self.released = self.now

    def peer(self, _: str) -> Node:
        return self

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def ask(self, request: Any, _: float) -> Any:
        match request:
            case EvictPod():
                self.asked.setdefault(request.pod_uid, self.now)
                return Done()
            case ListPodWorkers():
                rows = (self.row(name) for name in self.pods)
                return PodWorkerStates(pods=tuple(one for one in rows if one is not None), sources_ready=True)
            case Flush():
                self.flushed = self.now
                return Flushed()

    def row(self, name: str) -> Any:
        priority, ends_s, released_s = self.pods[name]
        since = self.now - self.asked.get(name, NEVER)
        if since >= released_s and name in self.gone:
            return None
        stage = "terminated" if since >= ends_s else "terminating" if since >= 0 else "sync"
        return row(name, priority, 30, stage, released=since >= released_s)


@pytest.fixture
def end_pods(monkeypatch: pytest.MonkeyPatch) -> Any:
    """End the pods of a node. Returns the seconds until EvictPod of each, and until the lock is released."""

    def end(node: Node) -> tuple[dict[str, float], float]:
        began = node.now
        monkeypatch.setattr(manager, "time", SimpleNamespace(monotonic=lambda: node.now, time=lambda: node.now))
        run(node.shutdown._end_pods(1))
        assert node.flushed == node.released
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
