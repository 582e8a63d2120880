"""Events of the supervision state machine that configuration reload needs."""

from __future__ import annotations

import pytest

from supervisor.supervision import transitions
from tests.supervisor.pure.test_tree import Driver, of, spec


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
    driver = Driver(spec(shutdown_s=4.0))
    driver.in_service()
    driver(transitions.RestartAsked("a", None, within_s))
    assert not of(transitions.Kill, driver.tick(killed_after_s - 0.1))
    assert of(transitions.Kill, driver.tick(0.2))
