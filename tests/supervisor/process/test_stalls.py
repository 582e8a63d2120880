"""Evidence of real processes that stall: the kind of the stall, the size and the time to save it."""

from __future__ import annotations

import pytest

from tests.supervisor.process.saving import KINDS, MOST_BYTES, WITHIN_S, save, saved_as, stalling


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_names_the_stall(kind: str) -> None:
    with stalling(kind) as (run_dir, process):
        found = saved_as(run_dir, process.pid, KINDS[kind])
        assert found.size <= MOST_BYTES
        assert f"Stall: {KINDS[kind]}: " in found.text
        quickest = min(found.took_s, *(save(run_dir, process.pid).took_s for _ in range(3)))
        assert quickest < WITHIN_S
