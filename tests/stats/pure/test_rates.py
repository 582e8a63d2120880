import pytest

from actors.stats.rates import MAX_INTERVAL_S, MIN_INTERVAL_S, Rates


def test_two_readings_make_a_rate_and_one_makes_none() -> None:
    rates = Rates()
    assert rates.is_old(100.0)
    assert rates.update(100.0, {"/": 0}) == {}
    assert not rates.has("/")
    assert rates.update(110.0, {"/": 5_000_000_000, "/new": 7}) == {"/": 500_000_000}
    assert rates.has("/")
    assert not rates.has("/new")


def test_early_reading_keeps_the_rate_and_its_base() -> None:
    rates = Rates()
    rates.update(100.0, {"/": 0})
    rates.update(110.0, {"/": 10_000_000_000})
    assert rates.update(110.0 + MIN_INTERVAL_S / 2, {"/": 11_000_000_000}) == {"/": 1_000_000_000}
    assert rates.update(120.0, {"/": 12_000_000_000}) == {"/": 200_000_000}


@pytest.mark.parametrize(
    ("now", "used"),
    [(100.0 + MAX_INTERVAL_S + 1, 10), (90.0, 10), (110.0, 4)],
    ids=["too old", "the clock went back", "fewer than before: another cgroup of that name"],
)
def test_incomparable_reading_counts_as_the_first(now: float, used: int) -> None:
    rates = Rates()
    rates.update(100.0, {"/": 5})
    assert rates.update(now, {"/": used}) == {}
    assert rates.update(now + 10, {"/": used + 10}) == {"/": 1}


def test_removed_cgroup_is_forgotten() -> None:
    rates = Rates()
    rates.update(100.0, {"/": 0, "/pod": 0})
    rates.update(110.0, {"/": 0})
    assert rates.update(120.0, {"/": 0, "/pod": 100}) == {"/": 0}
    assert rates.is_old(120.0 + MAX_INTERVAL_S + 1)
    assert not rates.is_old(121.0)
