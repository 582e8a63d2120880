"""Whose turn it is: importance, gathering, failures of one and of all. Time is handed in."""

from __future__ import annotations

import random

import pytest

from actors.status.duties import Order
from actors.status.turns import CAP_S, GATHER_S, TROUBLE_CAP_S, WIDTH, Turns

FINAL, READINESS, REST = Order.FINAL, Order.READINESS, Order.REST


def drain(turns: Turns, now: float) -> list[str]:
    """Everybody who may, one after the other."""
    taken = []
    while (key := turns.take(now)) is not None:
        taken.append(key)
        turns.nothing(key)
    return taken


def test_ends_come_first_then_readiness_then_the_rest_each_by_age():
    turns = Turns()
    for number, (key, order) in enumerate(
        [("r1", REST), ("r2", REST), ("y1", READINESS), ("f1", FINAL), ("y2", READINESS), ("f2", FINAL)]
    ):
        turns.mark(key, order, float(number))
    assert drain(turns, 10.0) == ["f1", "f2", "y1", "y2", "r1", "r2"]


def test_a_key_waits_once_with_its_latest_importance_and_its_first_time():
    turns = Turns()
    turns.mark("a", REST, 0.0)
    turns.mark("b", FINAL, 1.0)
    turns.mark("a", FINAL, 2.0)
    assert len(turns) == 2
    assert drain(turns, 3.0) == ["a", "b"]


def test_what_is_of_no_hurry_waits_for_more_of_its_pod_and_not_longer():
    turns = Turns()
    turns.mark("a", REST, 0.0, gather_s=GATHER_S)
    turns.mark("a", REST, 0.05, gather_s=GATHER_S)
    assert turns.take(0.06) is None
    assert turns.wait_s(0.06) == pytest.approx(GATHER_S - 0.06)
    assert turns.take(GATHER_S) == "a"
    turns.nothing("a")
    turns.mark("a", REST, 1.0, gather_s=GATHER_S)
    turns.mark("a", READINESS, 1.01)
    assert turns.take(1.01) == "a"


def test_no_more_calls_than_the_width_and_no_two_of_one_key():
    turns = Turns()
    for key in "abc":
        turns.mark(key, REST, 0.0)
    assert [turns.take(1.0) for _ in range(WIDTH)] == ["a", "b"]
    turns.mark("a", FINAL, 1.0)
    assert turns.take(1.0) is None
    turns.done("b", REST, 1.0)
    assert turns.take(1.0) == "c"
    turns.done("a", REST, 1.0)
    assert turns.take(1.0) == "a"


def test_after_a_deed_there_is_another_look():
    turns = Turns()
    turns.mark("a", REST, 0.0)
    assert turns.take(0.0) == "a"
    turns.done("a", REST, 0.1)
    assert drain(turns, 0.1) == ["a"]
    assert not len(turns)


def test_what_is_refused_to_one_waits_longer_each_time_and_holds_up_nobody():
    turns = Turns()
    turns.mark("bad", FINAL, 0.0)
    now, waits = 0.0, []
    for _ in range(7):
        assert turns.take(now) == "bad"
        turns.failed("bad", FINAL, now)
        turns.mark("good", REST, now)
        assert drain(turns, now) == ["good"]
        wait_s = turns.wait_s(now)
        assert wait_s is not None
        waits.append(wait_s)
        turns.mark("bad", FINAL, now)
        assert turns.take(now) is None  # another status of it does not make it more welcome
        now += wait_s
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, CAP_S, CAP_S]
    turns.mark("bad", FINAL, now, fresh=True)
    assert turns.take(now) == "bad"
    turns.done("bad", FINAL, now)
    assert turns.take(now) == "bad"
    turns.failed("bad", FINAL, now)
    assert turns.wait_s(now) == 0.25


def test_trouble_that_is_everybodys_holds_up_all_and_then_one_tries():
    turns = Turns()
    for key in "abcd":
        turns.mark(key, REST, 0.0)
    a, b = turns.take(0.0), turns.take(0.0)
    assert (a, b) == ("a", "b")
    turns.trouble("a", REST, 0.0, 0.5)
    turns.trouble("b", REST, 0.0, 0.5)
    turns.mark("end", FINAL, 0.05)
    assert turns.take(0.05) is None
    wait_s = turns.wait_s(0.05)
    assert wait_s is not None
    now = 0.05 + wait_s
    assert turns.take(now) == "end"
    assert turns.take(now) is None
    turns.done("end", FINAL, now)
    assert turns.take(now) is not None
    assert turns.take(now) is not None


def test_a_server_that_is_away_for_long_is_tried_often_enough_to_be_found_back():
    turns = Turns()
    turns.mark("a", REST, 0.0)
    now = 0.0
    for _ in range(40):
        assert turns.take(now) == "a"
        turns.trouble("a", REST, now, random.random())
        wait_s = turns.wait_s(now)
        assert wait_s is not None
        assert 0.05 < wait_s <= 1.25 * TROUBLE_CAP_S
        now += wait_s
    assert now < 40 * 1.25 * TROUBLE_CAP_S
    turns.answers()
    assert turns.take(now) == "a"


def test_what_the_server_asks_to_wait_is_waited_whatever_else_is_seen_of_it():
    turns = Turns()
    turns.mark("a", FINAL, 0.0)
    assert turns.take(0.0) == "a"
    turns.trouble("a", FINAL, 0.0, 0.0, 7.0)
    turns.answers()
    assert turns.take(6.9) is None
    assert turns.wait_s(0.0) == 7.0
    assert turns.take(7.0) == "a"


def test_what_is_forgotten_has_no_turn():
    turns = Turns()
    turns.mark("a", FINAL, 0.0)
    turns.mark("b", FINAL, 0.0)
    turns.take(0.0)
    turns.mark("a", FINAL, 0.0)
    turns.forget("b")
    turns.forget("a")
    turns.nothing("a")
    assert len(turns) == 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_everything_gets_said(seed):
    chance = random.Random(seed)
    turns, now, said = Turns(), 0.0, 0
    keys = [f"k{number}" for number in range(20)]
    active: list[str] = []
    for step in range(2000):
        now += chance.random() * 0.1
        if step < 1000:
            turns.mark(chance.choice(keys), chance.choice((FINAL, READINESS, REST)), now, gather_s=0.1)
        while (key := turns.take(now)) is not None:
            assert key not in active
            active.append(key)
        assert len(active) <= WIDTH
        for key in list(active):
            if chance.random() < 0.5:
                active.remove(key)
                match chance.randrange(10) if step < 1200 else 9:
                    case 0:
                        turns.trouble(key, REST, now, chance.random())
                    case 1:
                        turns.failed(key, REST, now)
                    case 2:
                        turns.done(key, REST, now)
                        said += 1
                    case _:
                        turns.nothing(key)
                        said += 1
    assert said > 100
    assert len(turns) == 0


def test_a_refusal_that_what_came_meanwhile_may_explain_is_not_waited_for():
    turns = Turns()
    turns.mark("a", REST, 0.0)
    assert turns.take(0.0) == "a"
    turns.mark("a", REST, 0.1, fresh=True)
    turns.failed("a", REST, 0.2, wait_s=10.0)
    assert turns.wait_s(0.2) == pytest.approx(0.25)
