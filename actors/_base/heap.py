"""Finds what this process's memory consists of: objects by type, and lines that allocated them where tracemalloc runs.

It examines a sample of the objects that the garbage collector tracks, and the texts and bytes that those refer to. It
calls no code of theirs.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter

from proto.agent.actor import MemoryUse, TypeUse

MOST_EXAMINED = 200_000
"""Some 0.3 s."""
MOST_TYPES = 20
MOST_LINES = 20
MOST_TRACE_MIB = 96
"""Traces of some two million blocks of memory. A snapshot takes some 200 bytes and a microsecond for each of them."""
_UNTRACKED = frozenset({str, bytes, bytearray, int, float})
"""Types of the built-in values that only their owners lead to."""


def use() -> MemoryUse:
    """Count and measure."""
    tracked = gc.get_objects()
    step = -(-len(tracked) // MOST_EXAMINED) or 1
    counts: Counter[type] = Counter()
    sizes: Counter[type] = Counter()
    seen: set[int] = set()
    examined = 0
    for value in tracked[::step]:
        examined += 1
        _add(counts, sizes, value)
        for part in gc.get_referents(value):
            if type(part) in _UNTRACKED and len(seen) < MOST_EXAMINED and id(part) not in seen:
                seen.add(id(part))
                _add(counts, sizes, part)
    largest = sizes.most_common(MOST_TYPES)
    return MemoryUse(
        types=tuple(TypeUse(type=_name(kind), count=counts[kind], kib=size // 1024) for kind, size in largest),
        objects=len(tracked),
        examined=examined,
        allocations=_allocations(),
    )


def trace_from_now() -> None:
    """Forget allocations from before the fork, where tracemalloc runs: to list them takes seconds."""
    if tracemalloc.is_tracing():
        tracemalloc.clear_traces()


def _add(counts: Counter[type], sizes: Counter[type], value: object) -> None:
    kind = type(value)
    counts[kind] += 1
    sizes[kind] += sys.getsizeof(value, 0)


def _name(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name[:200]


def _allocations() -> tuple[str, ...]:
    if not tracemalloc.is_tracing():
        return ()
    # Blocks from before the trace began have no trace and cost nothing here, so the traces are what is bounded.
    if (mib := tracemalloc.get_tracemalloc_memory() // 2**20) >= MOST_TRACE_MIB:
        return (f"cannot list allocations: their traces take {mib} MiB; lower memory_ceiling_mib",)
    lines = tracemalloc.take_snapshot().statistics("lineno")[:MOST_LINES]
    return tuple(f"{one.traceback[0]}: {one.size // 1024} KiB in {one.count} blocks" for one in lines)
