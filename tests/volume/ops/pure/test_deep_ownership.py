"""fsGroup on trees that are deeper than Python may call or a process may open files, and that change meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.files import trees
from actors.volume.ops.ownership import set_ownership
from tests.deep_trees import nest

GROUP = 4242
DEPTH = 3000

pytestmark = pytest.mark.needs("root")  # to change groups


@pytest.fixture
def top(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "volume"
    path.mkdir()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield path, fd
    os.close(fd)
    trees.remove(path)


def statuses(directory: int) -> list[os.stat_result]:
    """Of the directories inside each other and the file in the last."""
    here, found = os.dup(directory), []
    while True:
        found.append(os.fstat(here))
        (name,) = os.listdir(here)
        if name == "end":
            found.append(os.stat(name, dir_fd=here, follow_symlinks=False))
            os.close(here)
            return found
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below


def open_of(inodes: set[tuple[int, int]]) -> int:
    """Number of this process's descriptors of these files. Other tests' threads may open others."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own, and those of other threads
            status = os.fstat(int(descriptor))
            count += (status.st_dev, status.st_ino) in inodes
    return count


def test_volume_of_any_depth_is_given_to_the_group(top: tuple[Path, int]) -> None:
    path, fd = top
    nest(path, DEPTH)
    inodes = {(one.st_dev, one.st_ino) for one in statuses(fd)}
    assert len(inodes) == DEPTH + 2
    most = 0

    def progress(files: int = 0) -> None:
        nonlocal most
        most = max(most, open_of(inodes))

    set_ownership(fd, GROUP, read_only=False, progress=progress)
    assert [one.st_gid for one in statuses(fd)] == [GROUP] * (DEPTH + 2)
    assert 1 < most <= 3, "one directory and its listing are open at a time, beside the top"
    assert open_of(inodes) == 1


def owned(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in (path, *path.rglob("*")) if one.lstat().st_gid == GROUP}


@pytest.mark.parametrize("change", ["moved out", "moved", "removed", "replaced by a link"])
def test_directory_that_goes_meanwhile_leads_nowhere_else(top: tuple[Path, int], change: str) -> None:
    path, fd = top
    outside = path.parent / "outside"
    (outside / "c").mkdir(parents=True)
    for name in ("a/b/c/f", "g/f", "z/f"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()

    def progress(files: int = 0) -> None:
        if not (path / "a/b/c/f").exists() or (path / "a/b/c/f").stat().st_gid != GROUP:
            return
        (path / "a/b/c").rename(outside / "moved" if change != "moved" else path / "c")
        if change == "removed":
            trees.remove(path / "a")
        elif change == "replaced by a link":
            trees.remove(path / "a/b")
            (path / "a/b").symlink_to(outside)

    set_ownership(fd, GROUP, read_only=False, progress=progress)
    assert not (path / "a/b/c").exists() or change == "replaced by a link"
    assert owned(path) >= {".", "g", "g/f", "z", "z/f"}
    assert outside.stat().st_gid == (outside / "c").stat().st_gid == 0
