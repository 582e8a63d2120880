"""Memory ceilings: when a child is replaced, and how, without a process or a clock."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.supervision import transitions
from supervisor.supervision.memory import EVIDENCE_WAIT_S, MOST_SIZES, PAUSE_S, Growth
from supervisor.supervision.specs import Restart
from supervisor.supervision.transitions import Instruction, State
from tests.supervisor.supervision.pure.test_tree import Driver, names, of, spec

MIB = 1024
BEAT_S = 5.0


def driver(*others: str, **changes: Any) -> Driver:
    """A child in service with a ceiling of 100 MiB, and others."""
    values = {"heartbeat_period_s": BEAT_S, "memory_ceiling_mib": 100, **changes}
    specs = [spec(name, **values) for name in ("a", *others)]
    return Driver(*specs).in_service("a", *others)


def beat(one: Driver, mib: int, busy: str = "", name: str = "a", after_s: float = BEAT_S) -> list[Instruction]:
    """The child answers the next heartbeat."""
    one.now += after_s
    return one(transitions.PongReceived(name, one.incarnation(name), 0, mib * MIB, busy))


def replaced(one: Driver, *sizes: int, busy: str = "") -> bool:
    return bool([of(transitions.SaveGrowth, beat(one, mib, busy)) for mib in sizes][-1])


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((50, 60, 70), False),
        ((50, 150), False),  # may be a peak
        ((50, 150, 150), True),
        ((150, 50, 150), False),
        ((0, 0, 0), False),  # unknown
    ],
)
def test_child_past_its_ceiling_for_two_heartbeats_is_replaced(sizes: tuple[int, ...], expected: bool) -> None:
    assert replaced(driver(), *sizes) is expected


@pytest.mark.parametrize("changes", [{"memory_ceiling_mib": 0}, {"restart": Restart.TEMPORARY}])
def test_child_without_ceiling_or_restart_stays(changes: dict[str, Any]) -> None:
    assert not replaced(driver(**changes), 150, 150, 150)


def test_busy_child_has_its_patience_and_no_more() -> None:
    one = driver(memory_patience_s=60.0)
    assert not replaced(one, *[150] * 12, busy="cri cri PullImage")
    out = beat(one, 150, "cri cri PullImage")
    (order,) = of(transitions.SaveGrowth, out)
    assert "after 60 s of waiting for the end of cri cri PullImage" in order.why


def test_quiet_moment_is_taken_before_patience_ends() -> None:
    one = driver()
    assert not replaced(one, 150, 150, 150, busy="ask actor/pleg CallRuntime")
    assert replaced(one, 150)


def test_two_children_are_never_replaced_at_once() -> None:
    one = driver("b")
    beat(one, 150, after_s=BEAT_S)
    beat(one, 150, name="b", after_s=0)
    assert of(transitions.SaveGrowth, beat(one, 150))
    assert not of(transitions.SaveGrowth, beat(one, 150, name="b", after_s=0)), "the evidence of the first is collected"
    one(transitions.EvidenceSaved("a", 1, "/record"))
    assert not of(transitions.SaveGrowth, beat(one, 150, name="b")), "the first stops"
    one.end("a", 0)
    assert not of(transitions.SaveGrowth, beat(one, 150, name="b")), "the first starts"
    one.bring_up("a")
    assert of(transitions.SaveGrowth, beat(one, 150, name="b"))


def test_child_serves_until_evidence_is_saved_then_stops_in_order() -> None:
    one = driver()
    beat(one, 50)
    beat(one, 150)
    out = beat(one, 150)
    (order,) = of(transitions.SaveGrowth, out)
    assert [line.split(": ")[1] for line in order.sizes] == ["50.0 MiB", "150.0 MiB", "150.0 MiB"]
    assert one.state() is State.READY
    stopped = one(transitions.EvidenceSaved("a", 1, "/record"))
    assert of(transitions.AskStop, stopped) == [transitions.AskStop("a", 1, in_service=True)]
    ended = one.end("a", 0)
    (death,) = of(transitions.RecordDeath, ended)
    assert (death.cause, death.evidence) == ("memory", "/record")
    assert "grown to 150 MiB, past its ceiling of 100 MiB; replaced in a quiet moment" in death.reason
    assert names(transitions.Fork, ended) == ["a"]
    assert one.tree.children["a"].row(one.now).deaths == (("memory", "", 1),)


def test_evidence_that_does_not_come_delays_the_end_by_its_limit() -> None:
    one = driver()
    assert replaced(one, 150, 150)
    assert not of(transitions.AskStop, one.tick(EVIDENCE_WAIT_S - 0.1))
    assert of(transitions.AskStop, one.tick(0.2))
    assert of(transitions.Kill, one.tick(5.1)), "a stop that takes too long ends as any does"
    assert of(transitions.RecordDeath, one.end())[0].cause == "memory"


@pytest.mark.parametrize("status", [9, 70 << 8])
def test_death_before_the_request_to_stop_is_that_death(status: int) -> None:
    one = driver()
    assert replaced(one, 150, 150)
    (death,) = of(transitions.RecordDeath, one.end("a", status))
    assert death.cause != "memory"


def test_child_that_needs_so_much_memory_is_replaced_seldom() -> None:
    one = driver()
    assert replaced(one, 150, 150)
    one(transitions.EvidenceSaved("a", 1, ""))
    one.end("a", 0)
    one.bring_up("a")
    assert not replaced(one, *[150] * 100)
    one.now += PAUSE_S
    assert replaced(one, 150)


def test_request_of_an_operator_meanwhile_is_carried_out() -> None:
    one = driver()
    assert replaced(one, 150, 150)
    one(transitions.ActorOrdered("stop", "a", "operator"))
    assert not of(transitions.AskStop, one(transitions.EvidenceSaved("a", 1, "/late")))
    out = one.end("a", 0)
    assert not of(transitions.RecordDeath, out)
    assert one.state() is State.STOPPED


def test_sizes_are_bounded_and_keep_the_first() -> None:
    growth = Growth()
    for beat_ in range(1000):
        growth.add(float(beat_), 1 + beat_, 0, "")
    assert len(growth.sizes) <= MOST_SIZES
    assert (growth.sizes[0], growth.sizes[-1]) == ((0.0, 1), (999.0, 1000))
    assert growth.sizes == sorted(growth.sizes)
