"""Differences between a plan and its act: a table, and the property that every difference is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._host.node.plans import KEPT_S, SHOWN, Basis, LastPlan, changes


def basis(victims: str, verdicts: str = "", **figures: int) -> Basis:
    """`verdicts`: "a=used b=old"; the victims are `free`."""
    found = dict.fromkeys(victims, "free") | dict(one.split("=") for one in verdicts.split())
    return Basis(tuple(victims), found, figures, {one: f"image {one}" for one in found})


@pytest.mark.parametrize(
    ("plan", "act", "told"),
    [
        (basis("ab"), basis("ab"), []),
        (basis("ab", bytes=5), basis("ab", bytes=9), []),  # the same go
        (basis("ab"), basis("b", "a=used"), ["image a: was free, is used"]),
        (basis("b", "a=used"), basis("ab"), ["image a: was used, is free"]),
        (basis("ab"), basis("a"), ["image b: was free, is gone"]),
        (basis("a"), basis("ab"), ["image b: was not there, is free"]),
        (basis("ab", bytes=5), basis("a", "b=free", bytes=3), ["bytes: 5 in the plan, 3 now"]),
        (basis("ab"), basis("ba"), ["another order of removal"]),
        (
            basis("ab", "a=small b=large"),
            basis("ba", "a=large b=small"),
            ["image a: was small, is large", "image b: was large, is small"],
        ),
    ],
)
def test_an_act_tells_what_changed_since_its_plan(plan: Basis, act: Basis, told: list[str]) -> None:
    assert changes(plan, act) == told


BASES = st.builds(
    lambda victims, stay: Basis(tuple(victims), dict.fromkeys("abcd", "free") | dict.fromkeys(stay, "used")),
    st.lists(st.sampled_from("abcd"), unique=True),
    st.sets(st.sampled_from("abcd")),
)


@given(BASES, BASES)
def test_every_difference_is_told_and_nothing_else(plan: Basis, act: Basis) -> None:
    assert bool(changes(plan, act)) == (plan.victims != act.victims)


def test_a_plan_is_compared_once_and_not_for_ever() -> None:
    last = LastPlan()
    assert last.compare(basis("a"), 0.0) == ""
    last.keep(basis("a"), 0.0)
    assert last.compare(basis("b"), 12.0).startswith("Differs from the plan of 12 s ago: image a: ")
    assert last.compare(basis("c"), 13.0) == ""
    last.keep(basis("a"), 0.0)
    assert last.compare(basis("b"), KEPT_S + 1) == ""
    last.keep(basis("abcdefgh"), 0.0)
    assert last.compare(basis(""), 1.0).endswith(f"; and {8 - SHOWN} more")
