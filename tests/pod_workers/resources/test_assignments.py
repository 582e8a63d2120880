"""Waiting for the resources actor: what is asked again, what is rejected, and what it is told."""

from __future__ import annotations

import time
from typing import Any

import pytest

from actors._base import Future
from actors.pod_workers.admission import Rejection
from actors.pod_workers.model.desired import Desired
from actors.pod_workers.resources.assignments import RETRY_S, UNAVAILABLE, WAIT_S, Assignments
from proto.agent.settings import Settings
from proto.pods.pod_workers import PodUpdate, ResourcesState
from proto.resources.resources import AdmitPod, ReleasePod, SetListedPods, SetPods
from proto.v1 import Pod, from_dict
from proto.wire.errors import ActorDead, Refused
from proto.wire.message import Done, Message

NOT_YET = Refused("WaitingForResources", "no plugin for v/gpu")


def pod(name: str, gpu: str = "v/gpu", **meta: Any) -> Pod:
    container = {"name": "c", "resources": {"limits": {gpu: "1"}}} if gpu else {"name": "c"}
    return from_dict(Pod, {"metadata": {"name": name, "uid": name, **meta}, "spec": {"containers": [container]}})


class World:
    """The actor, its peer, the queue and the recorder in one; `log` has what they were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.log: list[str] = []
        self.told: list[Message] = []
        self.asks: list[tuple[str, Future[Done]]] = []
        self.running: list[bool] = []
        """Of each ask."""
        self.timers: list[Any] = []
        self.now = 0.0
        self.desired = Desired(sources=("api",))
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.assignments = Assignments(self, self, self.desired, self, self)  # type: ignore[arg-type]

    # The actor

    def peer(self, _name: str) -> World:
        return self

    def after(self, delay_s: float, function: Any) -> None:
        assert delay_s == RETRY_S
        self.timers.append(function)

    def post(self, function: Any, *, name: str) -> None:  # noqa: ARG002 - the signature
        function()

    def spawn(self, coroutine: Any, _name: str) -> None:
        future = coroutine.send(None)

        def resume(_: object) -> None:
            with pytest.raises(StopIteration):
                coroutine.send(None)

        future.add_done_callback(resume)

    # The peer

    def ask(self, request: AdmitPod, _deadline_s: float) -> Future[Done]:
        self.asks.append((request.pod.metadata.uid, Future()))
        self.running.append(request.running)
        return self.asks[-1][1]

    def tell(self, message: Message) -> None:
        self.told.append(message)

    # The queue, and the allocations

    def current(self, one: Pod) -> Pod:
        return one

    def assigned(self, uid: str) -> None:
        self.log.append(f"assigned {uid}")

    def not_assigned(self, uid: str, rejection: Rejection) -> None:
        self.log.append(f"rejected {uid}: {rejection.reason}: {rejection.message}")

    def assigned_later(self, uid: str, *, lasting: bool) -> None:
        self.log.append(f"{'still ' if lasting else ''}later {uid}")

    def try_assigning(self, uid: str) -> None:
        if not self.assignments.assign(uid):
            self.log.append(f"needs nothing {uid}")

    # The recorder

    def pod(self, one: Pod, _kind: str, reason: str, message: str) -> None:
        self.log.append(f"event {one.metadata.name} {reason}: {message}")

    # Steps

    def want(self, one: Pod, op: Any = "ADD") -> bool:
        self.desired.apply(PodUpdate(source="api", op=op, pods=(one,)))
        return self.assignments.assign(one.metadata.uid) if op == "ADD" else True

    def answer(self, answer: Done | Exception) -> list[str]:
        _, future = self.asks.pop(0)
        if isinstance(answer, Exception):
            future.set_error(answer)
        else:
            future.set(answer)
        log, self.log = self.log, []
        return log

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_pod_that_needs_nothing_is_not_asked_for(world: World) -> None:
    assert not world.want(pod("a", gpu=""))
    world.assignments.state_changed(ResourcesState())
    assert not world.want(pod("b"))
    assert (world.asks, world.told) == ([], [])


def test_answers_become_decisions(world: World) -> None:
    assert world.want(pod("a"))
    assert world.want(pod("b"))
    assert world.answer(Done()) == ["assigned a"]
    refusal = Refused("TopologyAffinityError", "m", retry=False)
    assert world.answer(refusal) == ["rejected b: TopologyAffinityError: m"]


def test_pod_waits_with_one_event_and_is_tried_again(world: World) -> None:
    world.want(pod("a"))
    assert world.answer(NOT_YET) == ["event a WaitingForResources: no plugin for v/gpu", "later a"]
    assert world.assignments.waiting() == {"a": "no plugin for v/gpu"}
    world.fire()
    assert world.answer(NOT_YET) == ["later a"]
    world.assignments.state_changed(ResourcesState(device_resources=("v/gpu",)))
    assert world.answer(Done()) == ["assigned a"]
    assert world.assignments.waiting() == {}


def test_a_wait_lasts_from_its_second_try_on(world: World) -> None:
    world.want(pod("a"))
    world.answer(NOT_YET)
    world.assignments.state_changed(ResourcesState(device_resources=("v/gpu",)))
    assert world.answer(NOT_YET) == ["later a"]
    world.now = RETRY_S
    world.fire()
    assert world.answer(NOT_YET) == ["still later a"]


def test_a_pod_is_listed_as_active_while_its_resources_are_assigned(world: World) -> None:
    world.want(pod("a"))
    world.assignments.pod_gone("a")
    listed = [one.active for told in world.told if isinstance(told, SetListedPods) for one in told.pods]
    assert listed == [True, False]


def test_a_pod_is_listed_before_its_resources_are_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "post", lambda *_, **__: None)  # the mailbox has other messages
    told_before: list[int] = []
    monkeypatch.setattr(world, "ask", lambda *_: told_before.append(len(world.told)) or Future())
    world.want(pod("a"))
    assert told_before == [1]


def test_waiting_has_a_deadline(world: World) -> None:
    world.want(pod("a"))
    world.answer(NOT_YET)
    world.now = WAIT_S + 1
    world.fire()
    wanted = "rejected a: UnexpectedAdmissionError: no plugin for v/gpu; waited 600 s for it"
    assert world.answer(NOT_YET) == [wanted]


def test_time_without_the_actor_does_not_count(world: World) -> None:
    world.want(pod("a"))
    assert world.answer(ActorDead("gone")) == ["later a"]
    assert world.assignments.waiting() == {"a": UNAVAILABLE}
    world.now = 10 * WAIT_S
    world.fire()
    assert world.answer(ActorDead("gone")) == ["later a"]
    world.fire()
    assert world.answer(Done()) == ["assigned a"]


def test_waiting_pod_that_is_deleted_needs_nothing(world: World) -> None:
    world.want(pod("a"))
    world.answer(NOT_YET)
    world.want(pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), "DELETE")
    world.assignments.pods_updated(["a"])
    assert (world.log, world.asks) == (["needs nothing a"], [])


def test_answer_for_a_pod_that_is_gone_is_dropped(world: World) -> None:
    world.want(pod("a"))
    world.assignments.pod_gone("a")
    assert ReleasePod(pod_uid="a") in world.told
    world.want(pod("a"))
    assert world.answer(NOT_YET) == []
    assert world.answer(Done()) == ["assigned a"]


def test_actor_learns_the_pods_that_may_hold_something(world: World) -> None:
    gpu, orphan = pod("gpu"), pod("orphan", gpu="")
    world.want(gpu)
    for one in (gpu, orphan):
        world.assignments.pod_started(one)
    world.assignments.resend(full=True)
    world.assignments.pod_gone("orphan")
    world.assignments.pod_gone("orphan")
    told = [one for one in world.told if not isinstance(one, SetListedPods)]
    assert told == [
        SetPods(pods=(orphan,)),
        SetPods(pods=(gpu, orphan), full=True),
        ReleasePod(pod_uid="orphan"),
    ]


def test_full_list_names_each_pod_that_is_asked_for(world: World) -> None:
    """resources withdraws the admissions of all others."""
    asked, waits, gone = pod("asked"), pod("waits"), pod("gone")
    for one in (waits, asked, gone):
        world.want(one)
    world.answer(NOT_YET)
    world.assignments.pod_gone("gone")
    world.assignments.resend(full=True)
    assert SetPods(pods=(waits, asked), full=True) in world.told


def test_pod_that_ran_before_is_asked_for_and_never_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Settings(cpu_manager_policy="static"))
    amounts = {"cpu": "1", "memory": "1Mi"}
    one = from_dict(
        Pod,
        {
            "metadata": {"name": "a", "uid": "a"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
        },
    )
    world.want(one, "SET")
    world.assignments.pod_started(pod("free", gpu=""))
    world.assignments.pod_started(one)
    told = [one for one in world.told if isinstance(one, SetPods)]
    assert told == [SetPods(pods=(pod("free", gpu=""),)), SetPods(pods=(one,))]
    assert world.running == [True]
    assert world.answer(Refused("UnexpectedAdmissionError", "no CPU is left", retry=False)) == []
    world.assignments.pod_started(one)
    assert world.asks == []
