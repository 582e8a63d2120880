"""When staged volumes are listed and unstaged again, and how many calls that takes of a driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future, Task
from actors.volume.csi.policy import not_registered
from actors.volume.drivers import unstaging
from actors.volume.drivers.locks import UNSTAGE_WIDTH, WIDTH, VolumeLocks
from actors.volume.drivers.unstaging import Unstaging
from actors.volume.reconcile.devices import Devices
from actors.volume.steps.codec import Outcome
from actors.volume.steps.csi import CsiStaged, Staged
from actors.volume.steps.volumes import Local

A, B, OTHER = Staged("d", "a"), Staged("d", "b"), Staged("other", "c")


class Node:
    """The actor, its helpers, its drivers and the disk. Tasks run until all of them wait."""

    def __init__(self, *volumes: Staged, registered: tuple[str, ...] = ()) -> None:
        self.volumes, self.registered = volumes, set(registered)
        self.unreadable: tuple[str, ...] = ()
        self.list_error, self.error = "", "it fails"
        self.asked: list[Any] = []
        self.settled = 0
        self.sleeps: list[tuple[float, Future[None]]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self._queue: deque[Callable[[], object]] = deque()
        in_use: Any = SimpleNamespace(leaving=frozenset(), settle=self._settle)
        registry: Any = SimpleNamespace(endpoint=lambda name: f"/{name}" if name in self.registered else "")
        me: Any = self
        self.subject = Unstaging(me, me, registry, VolumeLocks(), in_use)

    def _settle(self, *_: object) -> None:
        self.settled += 1

    def work(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def look(self) -> None:
        self.subject.look()
        self.work()

    def wake(self) -> None:
        """Ends all pauses."""
        sleeps, self.sleeps = self.sleeps, []
        for _, one in sleeps:
            one.set(None)
        self.work()

    def register(self, driver: str) -> None:
        self.registered.add(driver)
        self.subject.driver_registered(driver)
        self.work()

    # The actor and the pool

    def post(self, function: Callable[[], object], *, name: str) -> None:  # noqa: ARG002 - the actor's signature
        self._queue.append(function)

    def spawn(self, coroutine: Coroutine[Any, None, None], name: str) -> Task[None]:
        def fail(_: object, error: BaseException) -> None:
            raise error

        task = Task(coroutine, name, lambda one: self._queue.append(one.step), fail, lambda _: None)
        self._queue.append(task.step)
        return task

    def sleep(self, delay_s: float) -> Future[None]:
        one: Future[None] = Future()
        self.sleeps.append((delay_s, one))
        return one

    def after(self, delay_s: float, function: Callable[[], object]) -> None:
        self.timers.append((delay_s, function))

    def run(self, step: Any, **_: object) -> Future[tuple[Outcome, ...]]:
        answer: Future[tuple[Outcome, ...]] = Future()
        if isinstance(step, CsiStaged):
            found = Outcome(self.list_error, staged=self.volumes, unused=self.volumes, unreadable=self.unreadable)
            answer.set((found,))
        else:
            self.asked.append(step.staged)
            answer.set((Outcome(self.error),))
        return answer


def test_registration_retries_only_what_waits_for_it() -> None:
    node = Node(A, B, OTHER, registered=("d",))
    node.look()
    assert node.asked == [A, B]
    node.register("unknown")
    node.register("d")
    assert node.asked == [A, B], "their driver failed; each has its own back-off"
    node.register("other")
    assert node.asked == [A, B, OTHER]
    assert node.subject.describe() == dict.fromkeys("abc", "it fails")


def test_volume_waits_for_its_driver_and_is_unstaged() -> None:
    node = Node(A)
    node.look()
    assert node.subject.describe() == {"a": not_registered("d")}
    node.wake()
    assert node.asked == []
    node.error, node.volumes = "", ()
    node.register("d")
    assert (node.asked, node.subject.describe()) == ([A], {})


def test_gone_volume_of_a_gone_driver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstaging, "LOOK_AGAIN_S", 0.0)
    node = Node(A, B)
    node.look()
    node.volumes = (B,)
    settled = node.settled
    node.wake()
    assert node.subject.describe() == {"b": not_registered("d")}
    assert node.settled > settled


def test_looks_for_gone_volumes_are_bounded() -> None:
    node = Node(A, B)
    node.look()
    settled = node.settled
    for _ in range(5):
        node.wake()
    assert node.settled == settled


def test_nothing_is_settled_while_a_record_is_unreadable(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(A)
    node.unreadable = ("failed to open volume data file [x]",)
    node.look()
    for _ in range(3):
        node.timers[-1][1]()
        node.work()
    assert (node.settled, [delay for delay, _ in node.timers]) == (0, [0.5, 1.0, 2.0, 4.0])
    assert sum("failed to open" in one for one in caplog.messages) == 1
    node.look()
    assert len(node.timers) == 4, "one look is due already"
    node.unreadable = ()
    node.timers[-1][1]()
    node.work()
    assert node.settled == 1


def test_failed_looks_come_less_often_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.list_error = "no helper"
    node.look()
    delays = [node.sleeps[0][0]]
    for _ in range(3):
        node.wake()
        delays.append(node.sleeps[0][0])
    assert (delays, len(caplog.messages)) == ([0.5, 1.0, 2.0, 4.0], 1)
    node.list_error = ""
    node.wake()
    assert node.settled == 1


class Calls:
    """Calls that hold a lock, or wait for it, until the end of the test."""

    def __init__(self) -> None:
        self.locks = VolumeLocks()
        self._kept: list[object] = []

    def begins(self, driver: str, handle: str, **fields: bool) -> bool:
        """True when the lock was free."""
        manager: Any = self.locks.held(driver, handle, **fields)
        entry = manager.__aenter__()
        self._kept += [manager, entry]
        try:
            while entry.send(None).done():
                pass
        except StopIteration:
            return True
        return False


def test_hanging_unstage_calls_leave_the_driver_to_pods() -> None:
    calls = Calls()
    volumes = [f"old-{number}" for number in range(WIDTH)]
    held = [calls.begins("d", one, unstage=True) for one in volumes]
    assert held == [True] * UNSTAGE_WIDTH + [False] * (WIDTH - UNSTAGE_WIDTH)
    assert calls.begins("other", "old-0", unstage=True)
    assert calls.begins("d", "new"), "another volume of the driver"
    assert calls.begins("d", volumes[-1]), "a volume whose unstaging waits for its turn"
    assert not calls.begins("d", volumes[0]), "a volume that is being unstaged"


def test_disks_of_ended_pods_leave_no_lock() -> None:
    node: Any = Node()
    answer: Future[Any] = Future()
    pool: Any = SimpleNamespace(run=lambda *_, **__: answer)
    devices = Devices(node, pool)
    step = Local("u", "plugin", "pv-0", "/d")
    node.spawn(devices.run(step, is_wanted=lambda: True), "run")
    devices.release(*(f"pv-{number}" for number in range(50)))
    node.work()
    assert len(devices._locks) == 50
    answer.set((Outcome(),))
    node.work()
    assert len(devices._locks) == 0
