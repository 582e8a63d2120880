"""The room that resizes free and take: when it is given to other pods."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from actors._metrics.kubelet import RESIZES_ACCEPTED_LATE
from actors.pod_workers.model.allocation import resources_of
from actors.pod_workers.resources.allocation_manager import AllocationManager
from actors.pod_workers.resources.resize_conditions import Pending
from proto.agent.settings import Settings
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod
from tests.pod_workers.admission.test_admission_queue import QueueHarness
from tests.pod_workers.resources.resize_pods import GIB, sized


class Node:
    """An allocation manager, its queue and a worker for each pod, in one thread. It has 2 CPUs and 4 GiB.

    `actuates` does a worker's part. A node of the same directory is the next process.
    """

    def __init__(self, path: Any, *pods: Pod) -> None:
        self.queue = QueueHarness()
        self.told: list[tuple[str, bool]] = []
        """Each update of a worker: the UID, and whether the resize waits."""
        posted = lambda function, *arguments: function(*arguments)  # noqa: E731
        actor = Mock(settings=Settings(root_dir=str(path)), post=posted, blocking=self._at_once)
        actor.spawn = lambda coroutine, _: list(coroutine.__await__())
        workers = {one.metadata.uid: Mock(termination=None, update=self._update) for one in pods}
        self.manager = AllocationManager(
            actor,
            self.queue,  # type: ignore[arg-type]
            desired=self.queue.desired,
            admission_queue=self.queue.admission_queue,
            workers=workers,
            is_complete=lambda: True,
        )
        self.queue.connect(
            self.manager.current, self.manager.still_held, lambda: self.manager.retry_pending_resizes("pods_removed")
        )
        self.queue.want(*pods, running=tuple(workers))
        for one in pods:
            self.manager.admitted(one)

    async def _at_once(self, _: float, write: Callable[[], None]) -> None:
        write()

    def _update(self, allocated: Pod, _: Pod, pending: Pending | None) -> None:
        self.told.append((allocated.metadata.uid, pending is not None))

    def actuates(self, *uids: str) -> None:
        """The containers hold what is allocated, and the workers say so."""
        for uid in uids:
            info = resources_of(self.manager.current(self.queue.desired.pods[uid]))
            self.manager.actuated.set(uid, info)
            self.manager.actuated.note_resize(uid, info)

    def asks(self, *pods: Pod) -> None:
        """The source wants other resources."""
        self.queue.desired.apply(PodUpdate(source="api", op="UPDATE", pods=pods))
        for one in pods:
            self.manager.update(one.metadata.uid)
        self.manager.retry_pending_resizes("pod_updated")

    def reason(self, uid: str) -> str:
        """Why the pod's resize waits; empty if it does not."""
        pending = self.manager.allocator.pending.get(uid)
        return "" if pending is None else f"{pending.reason} {pending.message}"

    def held(self) -> dict[str, int]:
        """GiB of memory by pod."""
        shares = self.queue.admission_queue.shares()
        return {one.pod.metadata.uid: one.held["memory"] // GIB for one in shares}


USED = f"Deferred Node didn't have enough resource: memory, requested: {2 * GIB}, used: {3 * GIB}, capacity: {4 * GIB}"


def shrinking(path: Any) -> Node:
    """A node whose pod `a` is to give 2 of its 3 GiB back, and whose pod `b` waits for one of them."""
    node = Node(path, sized("a", "500m", "3Gi"), sized("b", "500m", "1Gi"))
    node.actuates("a", "b")
    RESIZES_ACCEPTED_LATE.replace(())
    node.asks(sized("a", "500m", "1Gi"), sized("b", "500m", "2Gi"))
    return node


def late() -> dict[tuple[str, ...], float]:
    return {labels: numbers[0] for labels, numbers in RESIZES_ACCEPTED_LATE.take().items()}


def test_room_of_a_shrinking_pod_is_given_away_once_it_has_shrunk(tmp_path: Any) -> None:
    node = shrinking(tmp_path)
    assert (node.reason("a"), node.reason("b")) == ("", USED)
    assert node.held() == {"a": 3, "b": 1}
    assert [one.requests["memory"] // GIB for one in node.queue.admission_queue.shares()] == [1, 1]
    node.manager.actuated.note_resize("a", None)  # an attempt failed
    node.manager.retry_pending_resizes("periodic_retry")
    assert node.reason("b") == USED
    node.actuates("a")
    assert node.reason("b") == ""
    assert node.told[-1] == ("b", False)
    assert node.held() == {"a": 1, "b": 2}
    assert late() == {("pod_resized",): 1}


def test_a_part_of_a_resize_frees_its_part(tmp_path: Any) -> None:
    node = shrinking(tmp_path)
    node.manager.actuated.set("a", resources_of(sized("a", "500m", "2Gi")))
    node.manager.actuated.note_resize("a", None)
    assert (node.held(), node.reason("b")) == ({"a": 2, "b": 2}, "")


def test_notes_that_come_together_are_decided_on_once(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them would give every resize that waits another message, and its pod another step."""
    node = Node(tmp_path, *(sized(uid, "100m", "1Gi") for uid in "abc"))
    node.actuates("a", "b", "c")
    node.asks(sized("a", "100m", "512Mi"), sized("b", "100m", "512Mi"), sized("c", "100m", "3Gi"))
    assert node.reason("c").startswith("Deferred")
    posted: list[tuple[Callable[..., None], Any]] = []
    monkeypatch.setattr(node.manager._actor, "post", lambda function, *arguments: posted.append((function, arguments)))
    monkeypatch.setattr(node.manager, "retry_pending_resizes", Mock(side_effect=node.manager.retry_pending_resizes))
    node.actuates("a", "b")
    while posted:
        function, arguments = posted.pop(0)
        function(*arguments)
    assert (node.reason("c"), node.manager.retry_pending_resizes.call_count) == ("", 1)


def test_note_of_a_former_allocation_frees_nothing(tmp_path: Any) -> None:
    """The worker said so before it learned of the grant."""
    node = shrinking(tmp_path)
    node.manager.actuated.note_resize("a", resources_of(sized("a", "500m", "3072Mi")))
    assert (node.held(), node.reason("b")) == ({"a": 3, "b": 1}, USED)


def test_a_growing_pod_holds_its_room_before_it_has_grown(tmp_path: Any) -> None:
    node = Node(tmp_path, sized("a", "500m", "1Gi"), sized("b", "500m", "1Gi"))
    node.actuates("a", "b")
    node.asks(sized("a", "500m", "3Gi"))
    assert node.held() == {"a": 3, "b": 1}
    node.asks(sized("b", "500m", "2Gi"))
    assert node.reason("b").startswith("Deferred")


def test_a_restart_keeps_the_room_of_a_shrinking_pod(tmp_path: Any) -> None:
    before = shrinking(tmp_path)
    before.manager.allocated.save()
    before.manager.actuated.save()
    node = Node(tmp_path, sized("a", "500m", "1Gi"), sized("b", "500m", "2Gi"))
    node.manager.retry_pending_resizes("pods_added")
    assert (node.held(), node.reason("b")) == ({"a": 3, "b": 1}, USED)
    node.actuates("a")
    assert (node.held(), node.reason("b")) == ({"a": 1, "b": 2}, "")


def test_container_that_does_not_run_holds_nothing_of_its_record(tmp_path: Any) -> None:
    """It starts with what is allocated. Until its worker has looked, it may run."""
    node = shrinking(tmp_path)
    node.manager.actuated.note_resize("a", resources_of(sized("a", "500m", "1Gi")))
    assert (node.held(), node.reason("b")) == ({"a": 1, "b": 2}, "")


def test_pods_without_a_record_hold_what_is_allocated(tmp_path: Any) -> None:
    """At the first start of all, and after a kubelet without the file."""
    node = Node(tmp_path, sized("a", "500m", "3Gi"), sized("b", "500m", "1Gi"))
    assert node.held() == {"a": 3, "b": 1}
    node.manager.finished("a")
    assert node.manager.still_held("a") is None


def test_resizes_wait_while_victims_of_a_critical_pod_end(tmp_path: Any) -> None:
    node = Node(
        tmp_path, sized("k", "500m", "1Gi", 2_000_000_000), sized("victim", "500m", "2Gi"), sized("b", "500m", "512Mi")
    )
    node.actuates("k", "victim", "b")
    node.queue.said()
    node.asks(sized("k", "500m", "3Gi", 2_000_000_000), sized("b", "500m", "1Gi"))
    assert node.queue.said() == ["save", "event victim Preempting", "end victim: Preempting"]
    node.manager.retry_pending_resizes("periodic_retry")
    assert (node.reason("k"), node.told[-1], node.queue.said()) == ("", ("b", False), [])
    assert node.manager.allocator.pending_resizes == {"k", "b"}
    node.queue.admission_queue.pod_terminated("victim")
    assert node.queue.said() == ["event k ResizeStarted", "event b ResizeStarted"]
    assert node.held() == {"k": 3, "b": 1}


@pytest.mark.parametrize("in_time", [True, False])
def test_a_critical_pod_grows_beside_victims_that_do_not_end(tmp_path: Any, in_time: bool) -> None:
    node = Node(tmp_path, sized("k", "500m", "1Gi", 2_000_000_000), sized("victim", "500m", "2Gi"))
    node.actuates("k", "victim")
    node.asks(sized("k", "500m", "3Gi", 2_000_000_000))
    node.queue.said()
    if in_time:
        node.queue.admission_queue.pod_terminated("victim")
    node.queue.timers[0][1]()
    assert node.queue.said() == ["event k ResizeStarted"]
    assert not node.queue.admission_queue.has_room("k")
