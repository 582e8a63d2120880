"""Until and Backoff against tables worked out by hand from wait.JitterUntil and wait.Backoff."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.common.until import Backoff, BackoffHistory, Until, jitter


@pytest.mark.parametrize(
    ("until", "started", "finished", "rolled", "expected"),
    [
        (Until(10.0), 100.0, 103.0, 0.5, 113.0),
        (Until(10.0, sliding=False), 100.0, 103.0, 0.5, 110.0),
        (Until(10.0, sliding=False), 100.0, 125.0, 0.5, 125.0),
        (Until(10.0, jitter_factor=0.2), 100.0, 103.0, 0.5, 114.0),
        (Until(10.0, jitter_factor=0.2, sliding=False), 100.0, 103.0, 0.0, 110.0),
        (Until(10.0, jitter_factor=-1.0), 100.0, 103.0, 0.9, 113.0),
        (Until(0.0), 100.0, 103.0, 0.5, 103.0),
        (Until(-5.0), 100.0, 103.0, 0.5, 103.0),
    ],
)
def test_next_start(until: Until, started: float, finished: float, rolled: float, expected: float) -> None:
    assert until.next_start(started, finished, lambda: rolled) == pytest.approx(expected)


def delays(backoff: Backoff, times: list[float], rolled: float = 0.0) -> list[float]:
    history, found = BackoffHistory(), []
    for now in times:
        delay_s, history = backoff.next_delay(history, now, lambda: rolled)
        found.append(delay_s)
    return found


@pytest.mark.parametrize(
    ("backoff", "times", "rolled", "expected"),
    [
        (Backoff(1.0, 2.0, 10.0), [0, 1, 3, 7, 15, 25], 0.0, [1, 2, 4, 8, 10, 10]),
        (Backoff(1.0, 2.0, 0.0), [0] * 6, 0.0, [1, 2, 4, 8, 16, 32]),
        (Backoff(1.0, 0.0, 10.0), [0, 0, 0], 0.0, [1, 1, 1]),
        (Backoff(20.0, 2.0, 10.0), [0, 0], 0.0, [20, 10]),  # as in wait.Backoff, only what grows is capped
        (Backoff(1.0, 2.0, 4.0, jitter=0.5), [0, 0, 0, 0], 1.0, [1.5, 3, 6, 6]),  # jitter comes after the cap
        (Backoff(1.0, 2.0, 10.0, reset_after_s=60.0), [0, 1, 61, 122], 0.0, [1, 2, 4, 1]),  # 60 s is not past 60 s
        (Backoff(1.0, 2.0, 10.0), [0, 1, 1e9], 0.0, [1, 2, 4]),
    ],
)
def test_delays(backoff: Backoff, times: list[float], rolled: float, expected: list[float]) -> None:
    assert delays(backoff, times, rolled) == pytest.approx(expected)


positive = st.floats(min_value=0.0, max_value=1e6)
rolls = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)


@given(positive, positive, positive, positive, st.booleans(), rolls)
def test_run_never_starts_before_the_last_one_finished(
    period: float, factor: float, started: float, took: float, sliding: bool, rolled: float
) -> None:
    assert Until(period, factor, sliding).next_start(started, started + took, lambda: rolled) >= started + took


@given(positive, positive, rolls)
def test_jitter_only_adds_and_at_most_its_factor(duration: float, factor: float, rolled: float) -> None:
    assert duration <= jitter(duration, factor, lambda: rolled) <= duration * (1 + factor) + 1e-6


@given(
    st.floats(min_value=0.001, max_value=10.0),
    st.floats(min_value=1.0, max_value=4.0),
    st.floats(min_value=10.0, max_value=100.0),
    st.lists(st.floats(min_value=0.0, max_value=30.0), max_size=30),
)
def test_delays_grow_to_the_cap_and_stay(initial: float, factor: float, cap: float, gaps: list[float]) -> None:
    found = delays(Backoff(initial, factor, cap), [sum(gaps[:n]) for n in range(len(gaps))])
    assert found == sorted(found)
    assert all(delay <= cap for delay in found)
