"""Ends that no request asked for: a child starts again, also when SIGKILL does not end it; and its recovery is told."""

from __future__ import annotations

import pytest

from proto.agent.supervisor import Note
from supervisor.health.checks import Health
from supervisor.supervision import transitions
from supervisor.supervision.process_tree import KILL_WAIT_S
from supervisor.supervision.transitions import State
from tests.supervisor.supervision.pure.test_memory import beat, driver
from tests.supervisor.supervision.pure.test_tree import CRASHED, Driver, of, spec


def test_child_past_its_ceiling_starts_again_when_written_off() -> None:
    one = driver()
    beat(one, 150)
    beat(one, 150)
    one(transitions.EvidenceSaved("a", 1, "/record"))
    assert of(transitions.Kill, one.tick(one.tree.children["a"].spec.shutdown_s)) == [transitions.Kill("a", 1)]
    out = one.tick(KILL_WAIT_S)
    assert of(transitions.WriteOff, out)
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]
    (record,) = of(transitions.RecordDeath, out)
    assert record.cause == "lost"
    assert "150 MiB" in record.reason
    assert record.reason.endswith("written off")


@pytest.mark.parametrize("end_within_s", [None, 1.0])
def test_restarted_child_starts_again_when_written_off(end_within_s: float | None) -> None:
    """On request, and for changed settings."""
    one = Driver(spec()).in_service("a")
    one(transitions.RestartAsked("a", None, end_within_s))
    out = one.tick(one.tree.children["a"].spec.shutdown_s + KILL_WAIT_S)
    assert of(transitions.WriteOff, out)
    assert of(transitions.Fork, out) == [transitions.Fork("a", 2)]


def test_recovery_is_told_when_the_child_dies_before_its_heartbeat() -> None:
    one = Driver(spec(max_restarts=1, intensity_period_s=12.0)).in_service("a")
    health = Health(["a"], one.now)
    for _ in range(2):
        for note in of(Note, one.end(status=CRASHED)):
            health.on_event(note, one.now)
        one.tick(one.tree.children["a"].spec.backoff_cap_s)
        one.bring_up()
    assert one.state() is State.READY
    assert health.degraded == {"a"}
    notes = of(Note, one.end(status=CRASHED, after_s=13.0))
    assert [note.reason for note in notes] == ["Recovered", "Died"]
    for note in notes:
        health.on_event(note, one.now)
    assert health.degraded == set()
