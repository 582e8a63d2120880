"""The faults of `why.py`: the right root cause comes first, in under 100 ms."""

from __future__ import annotations

import pytest

from tests.proof import why


@pytest.mark.timeout(900)
@pytest.mark.needs("cgroups")
def test_right_root_cause_comes_first() -> None:
    found = why.rows()
    assert [row for row in found if not row["passed"]] == []
    assert len(found) >= 49
