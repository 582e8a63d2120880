"""Times in the forms of the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from proto.common import rfc3339


@pytest.mark.parametrize(
    ("unix_s", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1.999999, "1970-01-01T00:00:01Z"),
        (-0.5, "1969-12-31T23:59:59Z"),
        (1_700_000_000, "2023-11-14T22:13:20Z"),
        (253402300799, "9999-12-31T23:59:59Z"),
    ],
)
def test_seconds_cut_fractions_off(unix_s: float, text: str) -> None:
    assert rfc3339.seconds(unix_s) == text


def test_nanoseconds_are_cut_off_exactly() -> None:
    assert rfc3339.from_nanos(1_700_000_000_999_999_999) == "2023-11-14T22:13:20Z"


def test_now_is_between_the_seconds_around_it() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert before <= datetime.fromisoformat(rfc3339.now()) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 0, UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 0, timezone(timedelta(hours=4))), "2026-01-01T23:04:05.000000Z"),
    ],
)
def test_micros_have_six_digits_in_utc(moment: datetime, text: str) -> None:
    assert rfc3339.micros(moment) == text


@pytest.mark.parametrize(
    ("unix_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001Z"),
        (1_700_000_000_999_999_999, "2023-11-14T22:13:20.999999999Z"),
    ],
)
def test_nanos_have_nine_digits(unix_ns: int, text: str) -> None:
    assert rfc3339.nanos(unix_ns) == text
