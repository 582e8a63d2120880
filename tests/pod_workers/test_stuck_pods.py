"""Finds stuck pods, and records an event once for each cause."""

from __future__ import annotations

from typing import Any

from actors.pod_workers import stuck_pods
from actors.pod_workers.model.wait_reasons import REJECTED
from proto.waits.facts import Facts
from proto.waits.record import Wait
from proto.waits.table import Table

NOW = 1000.0


def wait(kind: Any, name: str, age_s: float = 70, **more: Any) -> Wait:
    return Wait(kind=kind, waiter=f"pod/default/{name}", since=NOW - age_s, **more)


def facts(*waits: Wait) -> Facts:
    return Facts(
        now=NOW, tables={"pod_workers": Table(name="pod_workers", incarnation=1, pid=0, start_time=1, waits=waits)}
    )


def test_pods_that_wait_for_long_are_stuck() -> None:
    known = facts(
        wait("retry", "a", what="volumes", error="no"),
        wait("retry", "young", age_s=59),
        wait("timer", "timer"),
        wait("admission", "rejected", target=REJECTED, what="OutOfcpu"),
        wait("hook", "ends", what="container c to end within 600 s", deadline=NOW + 500),
        wait("hook", "overdue", what="container c to end within 10 s", deadline=NOW - 50, age_s=80),
    )
    assert stuck_pods.long_waiting(known) == ["pod/default/overdue", "pod/default/a"]


def test_next_look_is_when_a_wait_may_count() -> None:
    assert stuck_pods.next_look_s(facts()) == stuck_pods.STUCK_S
    assert stuck_pods.next_look_s(facts(wait("timer", "a"), wait("admission", "b", target=REJECTED))) == 60
    assert stuck_pods.next_look_s(facts(wait("retry", "a", age_s=20), wait("retry", "b", age_s=5))) == 40
    assert stuck_pods.next_look_s(facts(wait("retry", "a", age_s=59))) == stuck_pods.LOOK_S


def test_event_has_the_first_sentence_of_why() -> None:
    known = facts(wait("retry", "a", what="volumes: FailedMount", error='secret "x" not found', next_try=NOW + 8))
    (found,) = stuck_pods.explained(known, {})
    assert found.sentence == (
        'Pod default/a cannot go on for 70 s: volumes: FailedMount: secret "x" not found; next try in 8.0 s; '
        "create it, or correct its name"
    )


def test_same_cause_is_told_once_whatever_its_figures() -> None:
    first = facts(wait("retry", "a", what="container app: try 1", error="one"))
    (found,) = stuck_pods.explained(first, {})
    known = {found.subject: {found.key}}
    assert stuck_pods.explained(facts(wait("retry", "a", what="container app: try 2", error="two")), known) == []
    assert stuck_pods.explained(facts(wait("condition", "a", what="volumes")), known) != []


def test_one_look_explains_a_bounded_number() -> None:
    many = facts(*(wait("retry", f"p{number}", error="no") for number in range(100)))
    assert len(stuck_pods.explained(many, {})) == stuck_pods.MOST_PODS
