"""Requests of operators about one actor: stop keeps it stopped, start and restart end that, kill is a fault."""

from __future__ import annotations

from typing import Any

import pytest

from proto.agent.supervisor import ActorRow
from proto.wire.errors import Refused
from supervisor.supervision import transitions
from supervisor.supervision.transitions import State
from tests.supervisor.supervision.pure.test_tree import CRASHED, KILLED, Driver, of, spec


def order(what: Any, name: str = "a", asker: str = "me") -> transitions.ActorOrdered:
    return transitions.ActorOrdered(what, name, asker)


def answer(out: list[Any]) -> Any:
    (found,) = of(transitions.Answer, out)
    return found.answer


def test_stopped_actor_stays_stopped_and_shows_it() -> None:
    driver = Driver(spec()).in_service("a")
    assert of(transitions.AskStop, driver(order("stop")))
    out = driver.end("a", 0)
    assert (answer(out).state, answer(out).held) == ("stopped", True)
    assert driver.tick(1000.0) == []
    assert driver.state() is State.STOPPED


@pytest.mark.parametrize("again", [order("start"), transitions.RestartAsked("a", "me")])
def test_stopped_actor_is_started_by_operators_only(again: Any) -> None:
    driver = Driver(spec()).in_service("a")
    driver(order("stop"))
    driver.end("a", 0)
    assert driver(transitions.RestartAsked("a", None)) == []
    assert of(transitions.Fork, driver(again)) == [transitions.Fork("a", 2)]
    row = answer(driver.bring_up())
    assert (row.state, row.held) == ("ready", False)


@pytest.mark.parametrize("deaths", [2, 20])
def test_actor_in_back_off_is_stopped_at_once(deaths: int) -> None:
    driver = Driver(spec(max_restarts=5))
    driver(transitions.Boot())
    for _ in range(deaths):
        if driver.state() is not State.STARTING:
            driver.tick(20.0)
        driver(transitions.Forked("a", driver.incarnation(), 1))
        driver.end("a", CRASHED)
    assert driver.state() in (State.BACKOFF, State.DEGRADED)
    assert isinstance(answer(driver(order("stop"))), ActorRow)
    assert driver.tree.next_wakeup() is None
    assert of(transitions.Fork, driver(order("start")))


def test_start_while_stopping_starts_the_next_incarnation() -> None:
    driver = Driver(spec()).in_service("a")
    driver(order("stop", asker="stopper"))
    assert isinstance(answer(driver(order("start", asker="starter"))), Refused)
    assert of(transitions.Fork, driver.end("a", 0)) == [transitions.Fork("a", 2)]
    assert answer(driver.bring_up()).incarnation == 2


def test_start_of_a_running_actor_changes_nothing() -> None:
    driver = Driver(spec()).in_service("a")
    out = driver(order("start"))
    assert len(out) == 1
    assert answer(out).incarnation == 1


def test_killed_actor_restarts_as_after_any_death() -> None:
    driver = Driver(spec()).in_service("a")
    out = driver(order("kill"))
    assert answer(out).incarnation == 1
    assert of(transitions.Kill, out) == [transitions.Kill("a", 1)]
    assert of(transitions.Fork, driver.end("a", KILLED)) == [transitions.Fork("a", 2)]
    assert driver.tree.children["a"].deaths == 1


def test_kill_without_a_process_is_refused() -> None:
    driver = Driver(spec()).in_service("a")
    driver(order("stop"))
    driver.end("a", 0)
    assert answer(driver(order("kill"))).reason == "NotRunning"


@pytest.mark.parametrize("what", ["stop", "start", "kill"])
def test_order_for_an_unknown_actor_is_refused(what: str) -> None:
    refused = answer(Driver(spec()).in_service("a")(order(what, "z")))
    assert f"cannot {what} 'z': no such actor; there are: a" in str(refused)


def test_agent_that_stops_answers_who_waits_for_a_stop() -> None:
    driver = Driver(spec()).in_service("a")
    driver(order("stop", asker="me"))
    out = driver(transitions.StopAsked("all")) + driver.end("a", 0)
    assert [one.asker for one in of(transitions.Answer, out)] == ["me", "all"]
    assert driver.tree.finished


def test_stop_before_the_first_start_lets_dependents_start() -> None:
    driver = Driver(spec("a"), spec("b", depends_on=("a",)), spec("c", depends_on=("b",)))
    driver(transitions.Boot())
    assert [one.name for one in of(transitions.Fork, driver(order("stop", "b")))] == ["c"]
    assert of(transitions.Fork, driver.bring_up("a")) == []
