"""Lateness of probes by their own grid."""

from __future__ import annotations

import pytest

from tests.bench.measurements.probes import lateness_ms, missed


@pytest.mark.parametrize(
    ("times", "late", "missing"),
    [
        ([5.0, 6.0, 7.0], [0, 0, 0], 0),
        ([5.0, 6.03, 7.0], [0, 30, 0], 0),
        ([5.02, 6.0, 7.0], [20, 0, 0], 0),  # the first one was late
        ([5.0, 7.01, 8.0], [0, 10, 0], 1),
        ([5.0, 6.7, 7.0], [0, 700, 0], 0),
        ([], [], 0),
    ],
)
def test_lateness_is_by_the_most_punctual_probe(times: list[float], late: list[float], missing: int) -> None:
    assert [round(one) for one in lateness_ms([times])] == late
    assert missed([times]) == missing
