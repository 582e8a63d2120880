"""Go durations: exact values in both directions."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.v1.scalars.duration import DurationError, format_duration, parse_duration, parse_seconds


@pytest.mark.parametrize(
    ("text", "nanoseconds", "printed"),
    [
        ("0", 0, "0s"),
        ("1h2m3.5s", 3723500000000, "1h2m3.5s"),
        ("90s", 90 * 10**9, "1m30s"),
        ("24h", 86400 * 10**9, "24h0m0s"),
        ("1.5h", 5400 * 10**9, "1h30m0s"),
        ("100ms", 10**8, "100ms"),
        ("1us", 1000, "1\u00b5s"),
        ("1\u03bcs", 1000, "1\u00b5s"),
        ("-.5s", -5 * 10**8, "-500ms"),
        ("+5s", 5 * 10**9, "5s"),
        ("1.0000000019s", 10**9 + 1, "1.000000001s"),
        ("2562047h47m16.854775807s", 2**63 - 1, "2562047h47m16.854775807s"),
    ],
)
def test_value_and_form_are_go_s(text: str, nanoseconds: int, printed: str) -> None:
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == printed


@pytest.mark.parametrize("text", ["", "1", "s", "1d", "1h 2m", "-", "1.s.", ".s", "1hour", "9" * 50 + "h", "00"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)


def test_seconds_are_for_timers() -> None:
    assert parse_seconds("1m0.25s") == 60.25


@given(st.integers(-(2**63), 2**63 - 1))
def test_printed_form_parses_to_the_same(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_duration_error(text: str) -> None:
    with contextlib.suppress(DurationError):
        assert isinstance(parse_duration(text), int)
