"""The storm of `chaos.py` at a small size: its row passes."""

from __future__ import annotations

import pytest

from tests.proof import chaos


@pytest.mark.usefixtures("own_control_plane")
@pytest.mark.timeout(600 + 2 * chaos.CHAOS_S)
@pytest.mark.needs("cgroups")
def test_random_faults_lose_double_and_leave_nothing() -> None:
    found = chaos.rows()
    assert [row for row in found if not row["passed"]] == []
