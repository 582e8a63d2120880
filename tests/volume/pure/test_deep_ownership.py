"""fsGroup on trees that are deeper than Python may call or a process may open files, and that change meanwhile."""

from __future__ import annotations

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


def groups(directory: int) -> list[int]:
    """Of the directories inside each other and the file in the last."""
    here, found = os.dup(directory), []
    while True:
        found.append(os.fstat(here).st_gid)
        (name,) = os.listdir(here)
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if name == "end":
            os.close(here)
            return [*found, status.st_gid]
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below


def test_volume_of_any_depth_is_given_to_the_group(top: tuple[Path, int]) -> None:
    path, fd = top
    nest(path, DEPTH)
    most = 0

    def progress(files: int = 0) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    set_ownership(fd, GROUP, read_only=False, progress=progress)
    assert groups(fd) == [GROUP] * (DEPTH + 2)
    assert most <= before + 2, "one directory and its listing are open at a time"
    assert len(os.listdir("/proc/self/fd")) == before


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
