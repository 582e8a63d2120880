"""Events of the supervision state machine that configuration reload needs."""

from __future__ import annotations

import pytest

from supervisor.supervision import transitions
from tests.supervisor.supervision.pure.test_tree import Driver, of, spec


def test_only_unrequested_ends_are_deaths() -> None:
    driver = Driver(spec())
    driver.in_service()
    driver(transitions.RestartAsked("a", None))
    driver.end()
    driver.bring_up()
    assert driver.tree.children["a"].deaths == 0
    driver.end()
    assert driver.tree.children["a"].deaths == 1


def test_heartbeat_answer_belongs_to_its_incarnation() -> None:
    driver = Driver(spec())
    driver.in_service()
    driver(transitions.PongReceived("a", driver.incarnation(), 0))
    assert driver.tree.children["a"].ponged is not None
    driver.end()
    assert driver.tree.children["a"].ponged is None


@pytest.mark.parametrize(("within_s", "killed_after_s"), [(None, 4.0), (0.5, 0.5), (60.0, 4.0)])
def test_restart_may_shorten_the_time_to_end(within_s: float | None, killed_after_s: float) -> None:
    driver = Driver(spec(shutdown_s=4.0)).in_service("a")
    driver(transitions.RestartAsked("a", None, within_s))
    assert not of(transitions.Kill, driver.tick(killed_after_s - 0.1))
    assert of(transitions.Kill, driver.tick(0.2))


def test_restart_during_a_fork_or_a_stop_shortens_the_time_too() -> None:
    forking, stopping = Driver(spec(shutdown_s=4.0)), Driver(spec(shutdown_s=4.0)).in_service("a")
    forking(transitions.Boot())
    forking(transitions.RestartAsked("a", None, 0.5))
    forking(transitions.Forked("a", 1, 7))
    stopping(transitions.RestartAsked("a", None))
    stopping(transitions.RestartAsked("a", None, 0.5))
    for driver in (forking, stopping):
        assert not of(transitions.Kill, driver.tick(0.4))
        assert of(transitions.Kill, driver.tick(0.2))
