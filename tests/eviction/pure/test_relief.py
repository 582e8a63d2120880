"""The wait for the effect of a reclaim: it goes on while something is gained, and ends soon without a gain."""

from __future__ import annotations

import pytest

from actors.eviction import relief
from actors.eviction.policy import Progress, Reclaim
from actors.eviction.thresholds import DiskLayout, Threshold, parse_thresholds
from tests.image_gc.pure.test_histories import run

(DISK,) = parse_thresholds({"nodefs.available": "1000"}, {}, {}, {}, pods_are_limited=False)
(MEMORY,) = parse_thresholds({"memory.available": "1000"}, {}, {}, {}, pods_are_limited=False)
HELD = 1000
"""An amount that meets no threshold."""


class Node:
    """A node that is short of disk. Each look sees the next amount; the last one stays."""

    layout: DiskLayout = "one disk"

    def __init__(self, amounts: list[int], *, removes: bool = True) -> None:
        self.amounts, self.removes = amounts, removes
        self.looks = self.pauses = 0
        self.evicted: list[str] = []
        self.short = DISK
        self.memory_after = 99
        """Looks after which memory is short, too."""

    async def observe(self) -> Progress:
        self.looks += 1
        if self.looks > self.memory_after:
            return Progress({}, (MEMORY, DISK))
        return Progress({}, () if self.amount_of(DISK.signal) >= HELD else (DISK,))

    def amount_of(self, signal: str) -> int:
        if signal == MEMORY.signal:
            return 0
        return self.amounts[min(self.looks, len(self.amounts)) - 1]

    async def reclaim(self, _: Reclaim) -> bool:
        return self.removes

    async def pause(self) -> None:
        self.pauses += 1

    async def evict(self, threshold: Threshold) -> list[str]:
        self.evicted.append(threshold.signal)
        return ["uid"]


@pytest.mark.parametrize(
    ("amounts", "pauses", "evicts"),
    [
        ([HELD], 0, False),
        ([5], 2, True),
        ([5, HELD], 1, False),
        ([5, 5, HELD], 2, False),
        ([5, 5, 5, HELD], 2, True),
        ([5, 6, 6, 6, HELD], 3, True),
        ([5, 6, 6, 7, HELD], 4, False),
        ([5, 4, 5, HELD], 2, True),  # what a pod wrote meanwhile and deleted again is no gain
        ([5, 4, 3, 2], 2, True),
        (list(range(100)), relief.LOOKS, True),
    ],
)
def test_wait_lasts_while_a_reclaim_frees_more(amounts: list[int], pauses: int, evicts: bool) -> None:
    node = Node(amounts)
    assert run(relief.relieve(node, Progress({}, (DISK,)))) == (["uid"] if evicts else [])
    assert (node.pauses, node.evicted) == (pauses, [DISK.signal] if evicts else [])


def test_pod_goes_at_once_when_a_reclaim_removed_nothing() -> None:
    node = Node([5], removes=False)
    assert run(relief.relieve(node, Progress({}, (DISK,)))) == ["uid"]
    assert (node.looks, node.pauses) == (1, 0)


def test_another_shortage_is_no_gain() -> None:
    node = Node([5, 6, 7, 8, 9])
    node.memory_after = 1
    run(relief.relieve(node, Progress({}, (DISK,))))
    assert (node.pauses, node.evicted) == (2, [MEMORY.signal])
