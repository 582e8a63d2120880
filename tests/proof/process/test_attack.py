"""The attacks of `attack.py` at a small size: each row passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof import attack


@pytest.mark.timeout(400 + attack.FRAMES // 20)
@pytest.mark.needs("cgroups")
def test_no_attack_gets_in_or_stops_an_actor() -> None:
    found: list[dict[str, Any]] = attack.rows()
    assert [row for row in found if not row["passed"]] == []
    assert len(found) == len(attack.ATTACKS)
