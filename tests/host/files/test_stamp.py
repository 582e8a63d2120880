"""The stamp of a file's content."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actors._host.files.stamp import stamp


def _replace(path: Path) -> None:
    status = path.stat()
    path.with_name("new").write_text("next")
    os.utime(path.with_name("new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    path.with_name("new").replace(path)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda _: None, False),
        (lambda path: path.read_text(), False),
        (lambda path: path.chmod(0o600), False),
        (lambda path: path.write_text("longer"), True),
        (lambda path: os.utime(path, ns=(0, 1)), True),
        (_replace, True),
        (lambda path: path.unlink(), True),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_stamp_differs_when_the_content_may(
    change: Callable[[Path], object], differs: bool, linked: bool, tmp_path: Path
) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("text")
    link.symlink_to(path)
    seen = link if linked else path
    before = stamp(seen)
    change(path)
    assert (stamp(seen) != before) is differs


def test_stamp_of_a_missing_file_is_none(tmp_path: Path) -> None:
    assert stamp(tmp_path / "none") is None
