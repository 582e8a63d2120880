"""When the ResourceSlices of drivers that are away are deleted, and which ones."""

from __future__ import annotations

import pytest

from actors.objects.api.slices import selector
from actors.resources.dra.slices import GRACE_S, Absences
from proto.pods.objects import DeleteResourceSlices as Delete


def test_drivers_that_have_not_registered_are_away_from_the_start() -> None:
    absences = Absences(0.0)
    absences.look(["b", "a"], ["b", "a"], 10.0)
    assert absences.due(GRACE_S - 0.1) == []
    assert absences.due(GRACE_S) == [Delete(kept=("a", "b"))]
    absences.deleted("")
    absences.look(["a", "b"], ["a", "b"], 100.0)
    assert absences.due(1000.0) == []


@pytest.mark.parametrize("registered", [[], ["a"]])
def test_a_driver_has_its_grace_time_from_its_end(registered: list[str]) -> None:
    absences = Absences(0.0)
    absences.look(["a"], ["a"], 20.0)
    absences.look(registered, [], 25.0)
    absences.look(registered, [], 30.0)
    assert absences.due(30.0) == [Delete(kept=("a",))]
    absences.deleted("")
    assert absences.due(54.9) == []
    assert absences.due(55.0) == [Delete(driver="a")]
    absences.deleted("a")
    assert absences.due(1000.0) == []


def test_a_driver_that_comes_back_keeps_its_slices() -> None:
    absences = Absences(0.0)
    absences.deleted("")
    absences.look(["a"], ["a"], 0.0)
    absences.look([], [], 1.0)
    absences.look(["a"], ["a"], 20.0)
    absences.failed("a", 20.0)
    assert absences.due(1000.0) == []
    absences.look([], [], 1000.0)
    assert absences.due(1000.0 + GRACE_S) == [Delete(driver="a")]


def deletions(*looks: tuple[float, list[str], list[str]], until: float = 200.0) -> list[tuple[float, str]]:
    """Deletions and their times, with a look each second: (time, registered, usable) for each change."""
    absences, found = Absences(0.0), []
    absences.deleted("")
    for now in map(float, range(int(until))):
        registered, usable = next((one[1:] for one in reversed(looks) if one[0] <= now), ([], []))
        absences.look(registered, usable, now)
        for request in absences.due(now):
            found.append((now, request.driver))
            absences.deleted(request.driver)
    return found


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(5.0, ["a"], [])], [(35.0, "a")]),
        ([(5.0, ["a"], []), (34.0, ["a"], ["a"])], []),
        ([(5.0, ["a"], []), (60.0, ["a"], ["a"]), (70.0, ["a"], [])], [(35.0, "a"), (100.0, "a")]),
        ([(5.0, ["a"], []), (60.0, [], [])], [(35.0, "a"), (90.0, "a")]),
        ([(5.0, ["a"], []), (10.0, [], [])], [(35.0, "a")]),
        ([(5.0, ["a"], []), (10.0, ["a", "b"], ["b"])], [(35.0, "a")]),
    ],
    ids=["never listens", "listens late", "listens too late", "deregisters", "deregisters in its time", "another"],
)
def test_registered_driver_that_does_not_listen_is_away(
    looks: list[tuple[float, list[str], list[str]]], expected: list[tuple[float, str]]
) -> None:
    assert deletions(*looks) == expected


@pytest.mark.parametrize("failed_before", [False, True])
def test_registration_begins_the_grace_time_anew(failed_before: bool) -> None:
    absences = Absences(0.0)
    absences.deleted("")
    absences.look(["a"], ["a"], 0.0)
    absences.look(["a"], [], 1.0)
    if failed_before:
        absences.failed("a", 31.0)
    absences.registers("a", 40.0)
    absences.look(["a"], [], 40.0)  # it is not connected yet
    assert absences.due(69.9) == []
    assert absences.due(70.0) == [Delete(driver="a")]
    absences.failed("a", 70.0)
    assert absences.due(74.9) == []
    absences.look(["a"], ["a"], 75.0)
    assert absences.due(1000.0) == []


def test_a_driver_that_is_gone_before_the_next_look_is_away() -> None:
    absences = Absences(0.0)
    absences.deleted("")
    absences.look([], [], 40.0)
    absences.registers("a", 41.0)
    absences.look([], [], 45.0)
    assert absences.due(70.9) == []
    assert absences.due(71.0) == [Delete(driver="a")]


def test_a_driver_that_registers_and_serves_keeps_its_slices() -> None:
    absences = Absences(0.0)
    absences.deleted("")
    absences.registers("a", 41.0)
    absences.look(["a"], ["a"], 45.0)
    assert absences.due(1000.0) == []


def test_failures_are_tried_again_less_and_less() -> None:
    absences, now, waits = Absences(0.0), GRACE_S, []
    for _ in range(8):
        absences.failed("", now)
        wait = next(each for each in range(1000) if absences.due(now + each))
        waits.append(wait)
        now += wait
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("node", "request_", "expected"),
    [
        ("n1", Delete(driver="gpu.example.com"), "spec.nodeName=n1,spec.driver=gpu.example.com"),
        ("n1", Delete(), "spec.nodeName=n1"),
        ("n1", Delete(kept=("b.x", "a.x")), "spec.nodeName=n1,spec.driver!=a.x,spec.driver!=b.x"),
        ("n1", Delete(kept=("a,spec.nodeName=n2", "b.x")), "spec.nodeName=n1,spec.driver!=b.x"),
        ("n1", Delete(driver="a,spec.nodeName!=n1"), None),
        ("n1", Delete(driver="Ä"), None),
        ("", Delete(driver="gpu.example.com"), None),
        ("", Delete(), None),
    ],
)
def test_only_slices_of_this_node_are_selected(node: str, request_: Delete, expected: str | None) -> None:
    assert selector(node, request_) == expected
