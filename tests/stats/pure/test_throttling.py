"""CPU limits that throttle a container, by two readings of its cgroup and its pod's."""

import pytest

from actors._cgroup.figures import Detail
from actors.stats.throttling import WINDOW_S, is_limited, throttling
from proto.node.stats import Throttling

NONE = Detail()


def reading(periods: int, throttled: int, quota_us: int = 2000) -> Detail:
    return Detail(
        periods=periods,
        throttled_periods=throttled,
        throttled_ns=throttled * 98_000_000,
        quota_us=quota_us,
        period_us=100_000,
    )


OLD = reading(1000, 100)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (
            (OLD, NONE),
            (reading(1005, 104), NONE),
            Throttling(limit_milli=20, periods=5, throttled_periods=4, throttled_ms=392, over_s=WINDOW_S),
        ),
        # Its probe's process was killed, so it has had no work since.
        (
            (reading(50, 49), NONE),
            (reading(51, 50), NONE),
            Throttling(limit_milli=20, periods=51, throttled_periods=50, throttled_ms=4900),
        ),
        (
            (reading(0, 0, 0), OLD),
            (reading(0, 0, 0), reading(1004, 104)),
            Throttling(limit_milli=20, periods=4, throttled_periods=4, throttled_ms=392, over_s=WINDOW_S, of_pod=True),
        ),
        ((OLD, OLD), (reading(1005, 102), reading(1005, 102)), Throttling()),
        ((OLD, NONE), (OLD, NONE), Throttling()),
        ((reading(1, 1), NONE), (reading(2, 2), NONE), Throttling()),
        # A container that has ended since.
        ((reading(50, 49), NONE), (NONE, NONE), Throttling()),
        ((reading(50, 49, 0), NONE), (reading(60, 59, 0), NONE), Throttling()),
    ],
)
def test_most_periods_have_to_be_throttled(
    before: tuple[Detail, Detail], after: tuple[Detail, Detail], found: Throttling
) -> None:
    assert throttling(before, after) == found


def test_container_without_a_limit_takes_no_second_reading() -> None:
    assert not is_limited((NONE, reading(0, 0, 0)))
    assert is_limited((NONE, OLD))
