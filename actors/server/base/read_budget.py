"""Limits the log blocks that readers hold in memory: the more readers there are, the fewer blocks each reads ahead."""

from __future__ import annotations

BLOCKS_AT_ONCE = 16
"""Blocks that one reader takes in one call in a pool thread: a megabyte at most for a reader that lags behind."""
BLOCKS_OF_ALL = 1024
"""Blocks of all readers together, 64 MB; each reader has at least one."""


class ReadBudget:
    """Counts the readers. Each enters it as a context manager while it reads."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> ReadBudget:
        self._count += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1

    @property
    def blocks(self) -> int:
        """The number of blocks that a reader may read at once."""
        return max(1, min(BLOCKS_AT_ONCE, BLOCKS_OF_ALL // max(1, self._count)))
