"""Walks of volumes that are too large for one measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._host.files import disk_use
from actors._host.files.disk_use import DiskUse, Walk
from actors.volume.ops import usage
from actors.volume.steps import codec
from actors.volume.steps.volumes import LongWalk, Measure, in_order

SLICE = 100
"""Entries that one measurement counts."""


class Volume:
    """A volume of files, which is measured again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.walk: LongWalk | None = None
        path.mkdir()

    def fill(self, number: int) -> None:
        for one in range(number):
            (self.path / f"f{one}").touch()

    def keep(self, number: int) -> None:
        for one in list(self.path.iterdir())[number:]:
            one.unlink()

    def inodes(self) -> int:
        use, self.walk = usage.walked(str(self.path), self.walk, time.monotonic() + 60, bool)
        return use.inodes


class Sorted:
    """Entries of a directory in a given order."""

    def __init__(self, here: int, order: list[str]) -> None:
        with real_scandir(here) as entries:
            self.entries = sorted(entries, key=lambda one: order.index(one.name))

    def __enter__(self) -> Iterator[os.DirEntry[str]]:
        return iter(self.entries)

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


real_scandir = os.scandir
Slices = Callable[..., None]


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    """Limits each walk to some entries, of which skipped ones do not count up to `skipped`."""
    monkeypatch.setattr(disk_use, "MARK_ENTRIES", 10)

    def set_limit(skipped: int = 1_000_000) -> None:
        def sliced(deadline: float, to_skip: int = 0, **more: Any) -> Walk:
            return Walk(deadline, min(to_skip, skipped) + SLICE, to_skip=to_skip, **more)

        monkeypatch.setattr(usage, "Walk", sliced)

    set_limit()
    return set_limit


@pytest.fixture
def volume(tmp_path: Path, slices: Slices) -> Volume:
    return Volume(tmp_path / "v")


def test_volume_that_is_counted_at_once_has_no_long_walk(volume: Volume) -> None:
    volume.fill(50)
    assert (volume.inodes(), volume.walk) == (51, None)


def test_largest_count_holds_until_the_next_whole_one(volume: Volume) -> None:
    volume.fill(250)
    counts = [volume.inodes() for _ in range(6)]
    assert counts[2:] == [251] * 4
    assert counts[0] < counts[1] < 251
    volume.keep(100)
    assert [volume.inodes() for _ in range(4)][-1] == 101


def test_volume_that_shrinks_is_counted_anew(volume: Volume) -> None:
    volume.fill(250)
    volume.inodes(), volume.inodes()
    volume.keep(50)
    assert volume.inodes() == 51


def test_deleted_files_count_for_two_walks_at_most(volume: Volume) -> None:
    volume.fill(1000)
    for _ in range(15):
        volume.inodes()
    volume.keep(500)
    assert [volume.inodes() for _ in range(20)][-1] == 501


def test_files_that_no_measurement_gets_to_end_a_walk(volume: Volume, slices: Slices) -> None:
    """Otherwise the largest count would hold for ever."""
    volume.fill(1000)
    slices(skipped=300)
    counts = [volume.inodes() for _ in range(12)]
    assert 300 < max(counts) < 1000
    volume.keep(600)
    large = volume.path / "large"
    large.write_bytes(b"")
    counts = [volume.inodes() for _ in range(12)]
    assert max(counts) < 600
    assert counts[-1] > 300


def test_file_behind_new_ones_counts_once(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"f{one}" for one in range(150)]
    volume.fill(150)
    (volume.path / "f95").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(disk_use.os, "scandir", lambda here: Sorted(here, names))
    volume.inodes()
    names[:0] = [f"g{one}" for one in range(20)]
    for name in names[:20]:
        (volume.path / name).touch()
    volume.inodes()

    assert volume.walk
    assert volume.walk.last.bytes < 3 << 19


def test_another_directory_of_the_name_is_another_volume(volume: Volume) -> None:
    volume.fill(250)
    volume.inodes(), volume.inodes()
    volume.path.rename(volume.path.with_name("old"))
    volume.path.mkdir()
    assert (volume.inodes(), volume.walk) == (1, None)


def test_removed_volume_has_no_walk(volume: Volume) -> None:
    volume.fill(250)
    volume.inodes()
    volume.keep(0)
    volume.path.rmdir()
    assert (volume.inodes(), volume.walk) == (0, None)


def test_measurement_without_time_changes_nothing(volume: Volume) -> None:
    volume.fill(250)
    counts = [volume.inodes() for _ in range(4)]
    before = volume.walk
    assert before is not None
    assert before.seen > 0
    for _ in range(3):
        use, walk = usage.walked(str(volume.path), before, time.monotonic() - 1, bool)
        assert (use.inodes, walk) == (counts[-1], before)
    _, walk = usage.walked(str(volume.path), None, time.monotonic() - 1, bool)
    assert walk is not None
    assert (walk.seen, walk.so_far) == (0, DiskUse()), "the top is not counted again and again"


def test_each_walk_leaves_time_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = time.monotonic() + 64
    deadlines = [end - 64]

    class Late(Walk):
        def measure(self, path: str) -> DiskUse:  # noqa: ARG002
            deadlines.append(self.deadline)
            self.late, self.seen = True, 1
            return DiskUse(1, 1)

    monkeypatch.setattr(usage, "Walk", Late)
    for _ in range(5):
        monkeypatch.setattr(time, "monotonic", lambda now=deadlines[-1]: now)
        _, walk = usage.walked(str(tmp_path), None, end, bool)
    assert [round(end - one) for one in deadlines] == [64, 32, 16, 8, 4, 2]
    monkeypatch.setattr(time, "monotonic", lambda: end - 64)
    usage.walked(str(tmp_path), walk, end, bool)
    assert round(end - deadlines[-1]) == 48, "a walk that goes on has a smaller share"


def test_long_walks_travel_between_actor_and_helper() -> None:
    walks = {"v": LongWalk(1, 2, DiskUse(disk_use.MOST_USE, 4), DiskUse(5, 6), stalled=True)}
    step = Measure("u", 7.0, walks)
    assert codec.decode_steps(codec.encode([step])) == (step,)
    answer = codec.Outcomes((codec.Outcome(walks=walks),))
    assert codec.decode_answer(codec.encode(answer)) == answer


def test_pods_with_long_walks_are_measured_last_and_in_turn() -> None:
    uids = ["a", "b", "c", "d", "e"]
    assert in_order(uids, (), 7) == uids
    found = [in_order(uids, ("d", "b", "a", "gone"), number) for number in range(3)]
    assert found == [["c", "e", *last] for last in (["a", "b", "d"], ["b", "d", "a"], ["d", "a", "b"])]
