"""Reads of files in hostile volumes: only regular files inside the volume, without blocking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.volume.ops.inside import read
from actors.volume.steps.errors import VolumeError
from tests.harness import wait_for

MAX_BYTES = 1024 * 1024


@pytest.fixture
def volume(tmp_path: Path) -> str:
    inside = tmp_path / "volume"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub/f.env").write_bytes(b"KEY='in \xff'")
    (tmp_path / "f.env").write_text("KEY='out'")
    (inside / "up").symlink_to("../f.env")
    (inside / "absolute").symlink_to(tmp_path / "f.env")
    (inside / "root").symlink_to("/sub/f.env")
    (inside / "loop").symlink_to("loop")
    (inside / "dir").symlink_to("sub")
    os.mkfifo(inside / "fifo")
    with (inside / "large").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    return str(inside)


@pytest.mark.parametrize(
    "path", ["sub/f.env", "./sub//f.env", "root", "dir/f.env", "../sub/f.env", "sub/../../sub/f.env"]
)
def test_a_path_is_read_with_the_volume_as_its_root(volume: str, path: str) -> None:
    assert read(volume, path, MAX_BYTES) == b"KEY='in \xff'"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("up", "cannot open up: No such file"),
        ("absolute", "cannot open absolute: No such file"),
        ("../f.env", "cannot open"),
        ("loop", "cannot open loop: too many levels"),
        ("none", "cannot open none: No such file"),
        ("fifo", "fifo is not a regular file"),
        ("sub", "sub is not a regular file"),
        ("large", "large is larger than"),
    ],
)
def test_only_bounded_regular_files_are_read(volume: str, path: str, problem: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(VolumeError, match=f"^{problem}"):
        read(volume, path, MAX_BYTES)
    # Waited for: threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="nothing is left open")
