"""The worker of one probe, in virtual time: a runner without network, and a queue of timers that the test runs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actors._metrics.kubelet import PROBE_RESULTS, PROBE_SECONDS, PROBES
from actors._net.probing.outcome import Outcome
from actors.probe import worker as module
from actors.probe.policy import Kind
from actors.probe.timer_queue import TimerEntry
from actors.probe.worker import Worker
from proto.pods.probe import ProbedContainer
from proto.v1 import HTTPGetAction, Probe
from tests.probe import pods

SUCCESS, FAILURE, ERRORED = Outcome("success"), Outcome("failure", "no"), Outcome("errored", "?")


class World:
    """One worker, its clock, its timers and its runner. `answer` gives the outcome of each try, and may take time."""

    def __init__(self, kind: Kind, **numbers: int) -> None:
        self.now = 1000.0
        self.answer: Callable[[], Outcome | None] = lambda: SUCCESS
        self.timers: list[tuple[float, TimerEntry]] = []
        self.began: list[float] = []
        """When each try began."""
        self.done: Callable[[Outcome], None] = lambda outcome: None  # noqa: ARG005
        self.changes: list[str] = []
        self.worker = Worker(kind, self, self, lambda one, _: self.changes.append(one.standing.result), lambda *_: None)  # type: ignore[arg-type]
        self.probe = Probe(http_get=HTTPGetAction(port=80), **{"period_seconds": 60, "failure_threshold": 1} | numbers)
        self.container = ProbedContainer(
            name="c", container_id="id", running=True, started_at=self.now, **{str(kind): self.probe}
        )

    def at(self, due: float, action: Callable[[], None]) -> TimerEntry:
        """The queue of timers."""
        entry = TimerEntry(action)
        self.timers.append((due, entry))
        return entry

    def start(self, *args: Any) -> Callable[[], None]:
        """The runner."""
        self.began.append(self.now)
        self.done = args[-1]
        outcome = self.answer()
        if outcome is not None:
            self.done(outcome)
        return lambda: None

    def sync(self, **fields: Any) -> None:
        """pod_workers sends the pod."""
        self.worker.update(pods.pod(self.container, uid="u"), self.container, started=True, **fields)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while due := [one for one in self.timers if one[1].action is not None and one[0] <= end]:
            first = min(due, key=lambda one: one[0])
            self.timers.remove(first)
            self.now = max(self.now, first[0])
            action, first[1].action = first[1].action, None
            assert action is not None
            action()
        self.now = end


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    def made(kind: Kind = "readiness", **numbers: int) -> World:
        world = World(kind, **numbers)
        clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now)
        monkeypatch.setattr(module, "time", clock)
        return world

    PROBES.clear()
    return made


def counted() -> dict[str, float]:
    """The counts by result."""
    return {labels[1]: numbers[0] for labels, numbers in PROBE_RESULTS.take().items()}


def durations() -> list[tuple[float, float]]:
    """Number and sum of the observed durations, by sample."""
    return [(sum(numbers[:-1]), numbers[-1]) for numbers in PROBE_SECONDS.take().values()]


def test_only_successes_have_a_duration(make: Callable[..., World]) -> None:
    world = make(period_seconds=10)
    world.answer = lambda: FAILURE
    world.sync()
    world.run(5)
    assert (counted(), durations()) == ({"failed": 1}, [])
    world.answer = lambda: SUCCESS
    world.run(10)
    assert (counted(), durations()) == ({"failed": 1, "successful": 1}, [(1, 0)])


def test_probe_that_cannot_be_carried_out_is_not_counted(make: Callable[..., World]) -> None:
    world = make("liveness")
    world.answer = lambda: ERRORED
    world.sync()
    world.run(5)
    assert len(world.began) == 3
    assert (counted(), durations()) == ({}, [])


def test_duration_includes_the_tries_before(make: Callable[..., World]) -> None:
    world = make("liveness")
    world.answer = lambda: None
    world.sync()
    world.run(0)
    for outcome in (ERRORED, ERRORED, SUCCESS):
        world.now += 2
        world.done(outcome)
    assert durations() == [(1, 6)]
