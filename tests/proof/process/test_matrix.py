"""The matrix of `matrix.py` at a small size: each row passes."""

from __future__ import annotations

import pytest

from tests.proof import matrix


@pytest.mark.timeout(400)
@pytest.mark.needs("cgroups", "busybox")
def test_faults_of_three_actors_are_not_seen_by_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "PODS", 3)
    monkeypatch.setattr(matrix, "ROUNDS", 1)
    found = matrix.rows(
        ("kill", "stop", "exception", "start", "leak"), ("status", "pod_workers", "probe"), cluster=False
    )
    assert [row for row in found if not row["passed"]] == []
    assert len(found) == 5
