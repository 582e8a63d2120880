"""Real processes that stall: the evidence names the kind, is small, and is saved soon."""

from __future__ import annotations

from typing import Any

from tests.supervisor.process.saving import KINDS, MOST_BYTES, WITHIN_S, save, saved_as, stalling

TRIES = 3
"""The quickest counts, as other work runs beside."""


def rows() -> list[dict[str, Any]]:
    """A row for each kind of stall."""
    return [row_of(way, kind) for way, kind in KINDS.items()]


def row_of(way: str, kind: str) -> dict[str, Any]:
    """Stall in this way, and save evidence."""
    with stalling(way) as (run_dir, process):
        try:
            found = saved_as(run_dir, process.pid, kind)
        except AssertionError as error:
            return {"stall": way, "named": str(error)[:200], "passed": False}
        quickest = min(found.took_s, *(save(run_dir, process.pid).took_s for _ in range(TRIES)))
    passed = found.size <= MOST_BYTES and quickest < WITHIN_S
    return {"stall": way, "named": kind, "kib": found.size // 1024, "took_s": quickest, "passed": passed}
