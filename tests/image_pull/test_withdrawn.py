"""Pulls of pods that end: they leave the queue, or their calls are cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from proto.agent.actor import Describe
from proto.node.image_pull import DropPulls, ExpectImages, KeepPulls
from proto.pods.pleg import CancelPull
from proto.wire.errors import Refused
from tests.harness import ActorProcess, actor_process, wait_for
from tests.image_pull.fake import FakeImages
from tests.image_pull.test_actor import ensure, of_workload, said

FIRST, SECOND, THIRD = (f"slow.example/{one}:1" for one in "abc")


@pytest.fixture
def images(tmp_path: Path) -> Iterator[FakeImages]:
    service = FakeImages(tmp_path / "cri.sock")
    yield service
    service.close()


QUEUES: dict[str, dict[str, Any]] = {
    "for each registry": {},
    "for all registries": {"serialize_image_pulls": False, "max_parallel_image_pulls": 1},
}


@pytest.fixture(params=QUEUES)
def actor(images: FakeImages, request: pytest.FixtureRequest) -> Iterator[ActorProcess]:
    changed = {"container_runtime_endpoint": images.endpoint, **QUEUES[request.param]}
    with actor_process("image_pull", ("events", "pleg"), **changed) as process:
        yield process


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as one:
        yield one


def pulled(actor: ActorProcess) -> set[str]:
    """Images of pulls in the queue or in progress."""
    return set(actor.ask(Describe()).state["pulls"])


def reason_of(asked: Future[Any]) -> str:
    with pytest.raises(Refused) as caught:
        asked.result(30)
    return caught.value.reason


def held(actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor) -> list[Future[Any]]:
    """Ask for two images of a registry for the pods a and b: the first pull hangs, the second waits for its turn."""
    images.hold(FIRST)
    asked = [pool.submit(actor.ask, ensure(FIRST, pod="a"))]
    wait_for(lambda: images.calls["PullImage", FIRST] == 1, what="the first pull")
    asked.append(pool.submit(actor.ask, ensure(SECOND, pod="b")))
    wait_for(lambda: pulled(actor) == {FIRST, SECOND}, what="the second one waits")
    return asked


def test_pull_of_a_pod_that_ends_is_cancelled_and_the_next_begins(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    first, second = held(actor, images, pool)
    actor.tell(DropPulls(pod_uid="a"))
    assert second.result(30).pulled
    assert reason_of(first) == "Canceled"
    wait_for(lambda: actor.peers["pleg"].of(CancelPull), what="the runtime's call is cancelled")
    assert actor.peers["pleg"].of(CancelPull) == [CancelPull(image=FIRST, pod_uid="")]
    assert [reason for _, reason, _ in said(actor, 3)] == ["Pulling", "Pulling", "Pulled"]
    assert pulled(actor) == set()


def test_queued_pull_of_a_pod_that_ends_leaves_the_queue(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    first, second = held(actor, images, pool)
    actor.tell(DropPulls(pod_uid="b"))
    assert reason_of(second) == "Canceled"
    assert pulled(actor) == {FIRST}
    images.gates[FIRST].set()
    assert first.result(30).pulled
    assert actor.ask(ensure(THIRD, pod="c")).pulled
    assert images.calls["PullImage", SECOND] == 0
    assert actor.peers["pleg"].of(CancelPull) == []


def test_shared_pull_goes_on_for_the_pod_that_is_left(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    gate = images.hold("busybox:latest")
    leaving = pool.submit(actor.ask, of_workload("web-1"))
    wait_for(lambda: len(images.pulls) == 1, what="the pull")
    staying = pool.submit(actor.ask, of_workload("web-2"))
    wait_for(lambda: actor.ask(Describe()).state["requests"] == 2, what="both pods wait for it")
    actor.tell(DropPulls(pod_uid="web-1"))
    assert reason_of(leaving) == "Canceled"
    actor.tell(DropPulls(pod_uid="web-1"))
    assert pulled(actor) == {"busybox:latest"}
    gate.set()
    assert staying.result(30).pulled
    assert actor.peers["pleg"].of(CancelPull) == []


def test_shared_pull_ends_with_the_last_pod(actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor) -> None:
    images.hold("busybox:latest")
    asked = [pool.submit(actor.ask, of_workload("web-1"))]
    wait_for(lambda: len(images.pulls) == 1, what="the pull")
    asked.append(pool.submit(actor.ask, of_workload("web-2")))
    wait_for(lambda: actor.ask(Describe()).state["requests"] == 2, what="both pods wait for it")
    for name in ("web-1", "web-2"):
        actor.tell(DropPulls(pod_uid=name))
    assert [reason_of(one) for one in asked] == ["Canceled", "Canceled"]
    wait_for(lambda: actor.peers["pleg"].of(CancelPull), what="the runtime's call is cancelled")
    assert actor.peers["pleg"].of(CancelPull) == [CancelPull(image="busybox:latest", pod_uid="web-1")]


def test_pod_that_begins_again_under_its_uid_pulls_at_once(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    gate = images.hold(FIRST)
    before = pool.submit(actor.ask, ensure(FIRST, pod="a"))
    wait_for(lambda: images.calls["PullImage", FIRST] == 1, what="its first pull")
    actor.tell(DropPulls(pod_uid="a"))
    actor.ask(Describe())  # it has been told: what another thread asks may overtake it
    again = pool.submit(actor.ask, ensure(FIRST, pod="a"))
    wait_for(lambda: images.calls["PullImage", FIRST] == 2, what="its second pull, without back-off")
    gate.set()
    assert reason_of(before) == "Canceled"
    assert again.result(30).pulled


def test_image_is_not_pulled_for_a_pod_that_ends_while_it_is_looked_for(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    images.status_gate.clear()
    actor.tell(ExpectImages(images=(FIRST,)))
    wait_for(lambda: images.calls["ImageStatus", FIRST] == 1, what="the look")
    looking = actor.ask(Describe()).tasks
    asked = pool.submit(actor.ask, ensure(FIRST, pod="a"))
    wait_for(lambda: actor.ask(Describe()).tasks > looking, what="the pod waits for it")
    actor.tell(DropPulls(pod_uid="a"))
    actor.ask(Describe())
    images.status_gate.set()
    assert reason_of(asked) == "Canceled"
    assert images.pulls == []


def test_pulls_of_pods_that_a_new_pod_workers_does_not_know_are_withdrawn(
    actor: ActorProcess, images: FakeImages, pool: ThreadPoolExecutor
) -> None:
    first, second = held(actor, images, pool)
    actor.tell(KeepPulls(pod_uids=("b", "without a pull")))
    assert reason_of(first) == "Canceled"
    assert second.result(30).pulled
