"""Measuring writable layers: one walk at a time, and requests that do not wait for a long one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors._host.files.disk_use import DiskUse, Walk
from actors.runtime.stats import written
from actors.runtime.stats.written import WrittenLayers
from tests.harness import wait_for


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for its walk, also on a slow machine."""
    monkeypatch.setattr(written, "PATIENCE_S", 60.0)


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[WrittenLayers]:
    """Of containers whose IDs are the names of directories."""
    made = WrittenLayers(lambda id_: [tmp_path / id_] if (tmp_path / id_).is_dir() else [])
    yield made
    made.close()


class SlowDisk:
    """Walks that take until `goes_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self.walks = 0
        monkeypatch.setattr(written, "Walk", self.walk)

    def walk(self, *args: object) -> Walk:
        self.walks += 1
        walk = Walk(*args)  # type: ignore[arg-type]
        plain = walk.measure

        def measure(path: str) -> DiskUse:
            self.goes_on.wait(20)
            return plain(path)

        walk.measure = measure  # type: ignore[method-assign]
        return walk


def test_requests_share_a_walk_and_do_not_wait_for_its_end(
    layers: WrittenLayers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "small").mkdir()
    layers.refresh(["large"])
    assert layers.use("large").inodes == 1
    monkeypatch.setattr(written, "AGE_S", 0.0)
    monkeypatch.setattr(written, "PATIENCE_S", 0.2)
    (tmp_path / "large/file").write_bytes(b"x" * 8192)
    disk = SlowDisk(monkeypatch)
    began = time.monotonic()
    with ThreadPoolExecutor(20) as requests:
        list(requests.map(layers.refresh, [["large"]] * 20))
    assert time.monotonic() - began < 5
    assert disk.walks == 1
    assert layers.use("large").inodes == 1  # as last measured
    disk.goes_on.set()
    wait_for(lambda: layers.use("large").inodes == 2)
    monkeypatch.setattr(written, "PATIENCE_S", 60.0)
    layers.refresh(["small", "none"])
    assert (layers.use("small").inodes, layers.use("none"), layers.use("unknown")) == (1, DiskUse(), DiskUse())


def test_figures_are_as_old_as_the_end_of_their_walk(
    layers: WrittenLayers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").mkdir()
    monkeypatch.setattr(written, "AGE_S", 60.0)  # longer than a machine pauses between the end and the next request
    monkeypatch.setattr(written, "PATIENCE_S", 0.0)
    clock = time.monotonic
    ahead = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + ahead)
    disk = SlowDisk(monkeypatch)
    layers.refresh(["large"])
    wait_for(lambda: disk.walks == 1)
    ahead = 100.0  # the walk takes longer than its figures are kept
    disk.goes_on.set()
    wait_for(lambda: layers._layers["large"].work is None)
    assert layers.use("large").inodes == 1
    layers.refresh(["large"])
    assert layers._layers["large"].work is None


def test_all_directories_of_a_container_count(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 8192)
    layers = WrittenLayers(lambda _: [tmp_path / "one", tmp_path / "two"])
    layers.refresh(["c"])
    assert layers.use("c").inodes == 4
    assert layers.use("c").bytes >= 2 * 8192
    layers.close()


def test_a_layer_that_cannot_be_measured_leaves_the_others(tmp_path: Path) -> None:
    def places(id_: str) -> list[Path]:
        if id_ == "broken":
            raise ValueError("an unexpected error")
        return [tmp_path]

    layers = WrittenLayers(places)
    layers.refresh(["broken", "whole"])
    assert (layers.use("broken"), layers.use("whole").inodes) == (DiskUse(), 1)
    layers.forget("whole")
    assert layers.use("whole") == DiskUse()
    layers.close()
    layers.refresh(["whole"])
    assert layers.use("whole") == DiskUse()


def test_walk_under_way_ends_with_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(written, "PATIENCE_S", 0.0)
    disk = SlowDisk(monkeypatch)
    layers = WrittenLayers(lambda _: [tmp_path])
    layers.refresh(["large"])
    wait_for(lambda: disk.walks == 1)
    layers.close()
    disk.goes_on.set()
    wait_for(lambda: not any(one.name.startswith("disk-usage") for one in threading.enumerate()))
    assert layers.use("large") == DiskUse()
