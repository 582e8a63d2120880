"""Counts containers that ask for resources of their own, and failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from actors._metrics.registry import Counter
from actors.resources.model.provider import AllocationError


@contextmanager
def pinning(requests: Counter, errors: Counter, *, counts: bool = True) -> Iterator[None]:
    """Count one request, and an error if it ends in AllocationError. `counts` False: count neither."""
    requests.inc(by=int(counts))
    try:
        yield
    except AllocationError:
        errors.inc(by=int(counts))
        raise
