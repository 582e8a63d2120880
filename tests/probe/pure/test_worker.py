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


def times(world: World) -> list[float]:
    """When the tries began, since the start."""
    return [began - 1000 for began in world.began]


def test_container_that_turns_unready_is_probed_again_at_once(make: Callable[..., World]) -> None:
    """A failure of a moment does not keep it unready for a period."""
    world = make()
    outcomes = [SUCCESS, FAILURE, SUCCESS, SUCCESS]
    world.answer = lambda: outcomes.pop(0)
    world.sync()
    world.run(119)
    assert times(world) == [0, 60, 60]
    assert world.changes == ["success", "failure", "success"]
    world.run(2)
    assert times(world) == [0, 60, 60, 120]


def test_failure_that_stays_is_probed_at_its_period(make: Callable[..., World]) -> None:
    world = make()
    world.sync()
    world.run(1)
    world.answer = lambda: FAILURE
    world.run(200)
    assert times(world) == [0, 60, 60, 120, 180]


def test_failures_below_the_threshold_do_not_probe_again(make: Callable[..., World]) -> None:
    world = make(failure_threshold=3)
    world.sync()
    world.run(1)
    world.answer = lambda: FAILURE
    world.run(200)
    assert times(world) == [0, 60, 120, 180, 180]


def test_sync_of_an_unready_container_probes_and_restarts_its_period(make: Callable[..., World]) -> None:
    world = make()
    world.answer = lambda: FAILURE
    world.sync()
    world.run(20)
    world.sync()
    world.run(59)
    assert times(world) == [0, 20]
    world.run(2)
    assert times(world) == [0, 20, 80]
    world.answer = lambda: SUCCESS
    world.sync()
    world.run(1)
    assert times(world) == [0, 20, 80, 81]
    world.sync()
    world.run(10)
    assert times(world) == [0, 20, 80, 81], "it is ready"


def test_many_syncs_cause_a_probe_a_second(make: Callable[..., World]) -> None:
    world = make()
    world.answer = lambda: FAILURE
    world.sync()
    for _ in range(30):
        world.run(0.1)
        world.sync()
    world.run(50)
    assert times(world) == pytest.approx([0, 1, 2, 3, 4], abs=0.2)


def test_sync_during_a_probe_causes_another(make: Callable[..., World]) -> None:
    """The answer may be from before the change that caused the sync."""
    world = make()
    world.answer = lambda: None
    world.sync()
    world.run(3)
    world.sync()
    world.done(FAILURE)
    world.run(50)
    assert times(world) == [0, 3]


@pytest.mark.parametrize("kind", ["liveness", "startup"])
def test_sync_leaves_other_probes_at_their_period(make: Callable[..., World], kind: Kind) -> None:
    world = make(kind, failure_threshold=10)
    world.answer = lambda: FAILURE
    for _ in range(3):
        world.sync()
        world.run(10)
    assert times(world) == [0]


def test_sync_ends_no_initial_delay(make: Callable[..., World]) -> None:
    world = make(initial_delay_seconds=30)
    for _ in range(4):
        world.sync()
        world.run(5)
    assert times(world) == []
    world.run(15)
    assert times(world) == [30]


def test_terminating_pod_that_turns_unready_waits_for_its_period(make: Callable[..., World]) -> None:
    world = make()
    world.sync()
    world.run(1)
    world.worker.update(pods.pod(world.container, uid="u", terminating=True), world.container, started=True)
    world.answer = lambda: FAILURE
    world.run(100)
    assert times(world) == [0, 60]
