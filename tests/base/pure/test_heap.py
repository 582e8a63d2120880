"""The types and the lines that a process's memory consists of."""

from __future__ import annotations

import tracemalloc

import pytest

from actors._base import heap

KIB = 1024


def test_sample_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MOST_EXAMINED", 1000)
    use = heap.use()
    assert 300 < use.examined <= 1000 < use.objects


@pytest.mark.timeout(400)  # it traces millions of objects: a minute on a busy machine
def test_lines_that_allocate_are_named_where_tracemalloc_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heap.use().allocations == ()
    tracemalloc.start()
    try:
        before = bytes(5000 * KIB)
        untraced = [object() for _ in range(2_500_000)]
        heap.trace_from_now()
        kept = [bytes(1000 * KIB) for _ in range(20)]
        (first, *others) = heap.use().allocations
        monkeypatch.setattr(heap, "MOST_TRACE_MIB", 0)
        (too_many,) = heap.use().allocations
    finally:
        tracemalloc.stop()
    assert __file__ in first
    assert "20000 KiB" in first
    assert not [line for line in others if "5000 KiB" in line]
    assert "cannot list allocations: their traces take" in too_many
    del kept, before, untraced
