"""The hung call of `hung_call.py` for a few seconds: its row passes."""

from __future__ import annotations

import pytest

from tests.proof import hung_call


@pytest.mark.usefixtures("own_control_plane")
@pytest.mark.timeout(400 + hung_call.HUNG_S)
@pytest.mark.needs("cgroups")
def test_hung_call_of_one_pod_delays_no_other() -> None:
    found = hung_call.rows(hung_call.PODS if hung_call.FULL else 6)
    assert [row for row in found if not row["passed"]] == []
