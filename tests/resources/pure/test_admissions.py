"""Withdraws admissions under way."""

from __future__ import annotations

import pytest

from actors.resources.admissions import Admissions


def test_release_withdraws_what_is_under_way_and_nothing_later() -> None:
    admissions = Admissions()
    first, other = admissions.begin("a"), admissions.begin("b")
    admissions.withdraw("a")
    again = admissions.begin("a")
    assert [one.withdrawn for one in (first, other, again)] == [True, False, False]


@pytest.mark.parametrize(("listed", "withdrawn"), [((), "abb"), (("a",), "bb"), (("b", "c"), "a"), (("a", "b"), "")])
def test_full_list_withdraws_pods_that_it_does_not_name(listed: tuple[str, ...], withdrawn: str) -> None:
    admissions = Admissions()
    under_way = [admissions.begin(uid) for uid in "abb"]
    admissions.withdraw_others(listed)
    assert "".join(one.pod_uid for one in under_way if one.withdrawn) == withdrawn


def test_withdrawn_admission_stays_withdrawn() -> None:
    admissions = Admissions()
    one = admissions.begin("a")
    admissions.withdraw("a")
    admissions.withdraw_others(("a",))
    assert one.withdrawn


def test_withdrawn_admission_has_nothing_to_give_back() -> None:
    admissions = Admissions()
    first, second = admissions.begin("a"), admissions.begin("b")
    assert not admissions.any_chosen()
    first.chosen = second.chosen = True
    admissions.withdraw("a")
    assert admissions.any_chosen()
    admissions.withdraw("b")
    assert not admissions.any_chosen()


def test_second_admission_of_a_pod_ends_before_the_first() -> None:
    admissions = Admissions()
    first, second = admissions.begin("a"), admissions.begin("a")
    admissions.end(second)
    assert admissions.pods() == ["a"]
    admissions.withdraw("a")
    assert (first.withdrawn, second.withdrawn) == (True, False)
    admissions.end(first)
    assert admissions.pods() == []
