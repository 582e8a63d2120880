"""Backoff by a count of failures. Its history is tested with wait.Until in tests/supervisor/pure/test_until.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.common.backoff import Backoff, BackoffHistory


@pytest.mark.parametrize(
    ("backoff", "rolled", "expected"),
    [
        (Backoff(1.0, cap_s=10.0), 0.0, [0, 1, 2, 4, 8, 10, 10]),
        (Backoff(0.5, factor=1.5), 0.0, [0, 0.5, 0.75, 1.125]),
        (Backoff(5.0, factor=0.0), 0.0, [0, 5, 5, 5]),
        (Backoff(1.0, cap_s=4.0, jitter=0.5), 1.0, [0, 1.5, 3, 6, 6]),
        (Backoff(20.0, cap_s=10.0), 0.0, [0, 20, 10, 10]),
    ],
)
def test_delay_by_failures(backoff: Backoff, rolled: float, expected: list[float]) -> None:
    assert [backoff.delay_s(count, lambda: rolled) for count in range(len(expected))] == pytest.approx(expected)


def test_delay_after_very_many_failures_is_the_cap() -> None:
    assert Backoff(0.2, cap_s=7.0).delay_s(10**9) == 7.0
    assert Backoff(3.0, factor=1.0).delay_s(10**9) == 3.0


@pytest.mark.parametrize(
    ("reset_after_s", "now", "expected"),
    [(600.0, 700.0, False), (600.0, 700.1, True), (600.0, 0.0, False), (0.0, 1e9, False)],
)
def test_delay_is_reset_only_after_its_time(reset_after_s: float, now: float, expected: bool) -> None:
    backoff = Backoff(1.0, reset_after_s=reset_after_s)
    assert backoff.is_reset(100.0, now) is expected
    assert backoff.next_delay(BackoffHistory(8.0, 100.0), now, lambda: 0.0)[0] == (1.0 if expected else 8.0)


@given(st.floats(0.001, 100), st.floats(0, 10), st.floats(0, 1000), st.integers(1, 30))
def test_delay_by_failures_and_by_history_agree(initial: float, factor: float, cap: float, failures: int) -> None:
    backoff, history, delay_s = Backoff(initial, factor, cap), BackoffHistory(), 0.0
    for now in range(failures):
        delay_s, history = backoff.next_delay(history, now, lambda: 0.0)
    assert backoff.delay_s(failures) == pytest.approx(delay_s)
