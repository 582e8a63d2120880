"""Removal of hostile directory trees: deep ones, links, mounts, and directories without rights."""

import itertools
import math
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors._host.files import trees
from tests.deep_trees import nest
from tests.harness import wait_for

ORDINARY_UID = 54321


def test_tree_deeper_than_a_path_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 3000)
    nest(tree, 100, "x" * 200)
    before = set(os.listdir("/proc/self/fd"))
    trees.remove(tree)
    assert not tree.exists()
    # Threads that other tests have left may open something for a moment.
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= before, what="nothing is left open")


def test_removal_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 500)
    highest, rmdir = 0, os.rmdir

    def watched(name: str, *, dir_fd: int | None = None) -> None:
        nonlocal highest
        highest = max(highest, len(os.listdir("/proc/self/fd")))
        rmdir(name, dir_fd=dir_fd)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "rmdir", watched)
    trees.remove(tree)
    assert highest - before < 40


def test_removal_follows_no_link_and_is_idempotent(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(outside)
    (tree / "a/b/file").touch()
    os.mkfifo(tree / "a/fifo")
    (tmp_path / "link").symlink_to(outside)
    for _ in range(2):
        trees.remove(tree)
        trees.remove(tmp_path / "link")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "precious").exists()


@pytest.mark.needs("mounts")
def test_mount_stays_with_its_content_and_all_else_goes(tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    source.mkdir()
    (source / "precious").touch()
    (tree / "mounted").mkdir(parents=True)
    for number in range(3):
        (tree / f"other{number}/below").mkdir(parents=True)
    subprocess.run(["mount", "--bind", source, tree / "mounted"], check=True)  # on the same file system
    try:
        for path in (tree, tree / "mounted"):
            with pytest.raises(OSError, match="busy"):
                trees.remove(path)
        assert [path.name for path in tree.iterdir()] == ["mounted"]
        assert (source / "precious").exists()
    finally:
        subprocess.run(["umount", tree / "mounted"], check=True)
    trees.remove(tree)
    assert not tree.exists()


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Without root's rights to all files."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(ORDINARY_UID)
    try:
        yield
    finally:
        os.seteuid(user)


def test_directories_without_rights_are_removed_by_their_owner(tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_RDONLY)  # the directories above are not the user's
    if os.geteuid() == 0:
        os.chown(tmp_path, ORDINARY_UID, -1)
    with ordinary_user():
        os.mkdir("tree", dir_fd=top)
        here = os.open("tree", os.O_RDONLY, dir_fd=top)
        for _ in range(40):
            for mode, name in ((0o000, "none"), (0o500, "no-write"), (0o700, "down")):
                os.mkdir(name, dir_fd=here)
                below = os.open(name, os.O_RDONLY, dir_fd=here)
                os.mkdir("inner", dir_fd=below)
                os.fchmod(below, mode)
            os.fchmod(here, 0o500)
            os.close(here)
            here = below
        os.close(here)
        trees.remove("tree", dir_fd=top)
    os.close(top)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", ["_MOST_RETRIES", "_MOST_S"])
def test_tree_that_is_written_to_ends_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(trees, "_MOST_RETRIES", 10**9)
    monkeypatch.setattr(trees, "_MOST_S", 60.0)
    monkeypatch.setattr(trees, limit, 1)
    tree = tmp_path / "tree"
    (tree / "busy").mkdir(parents=True)
    (tree / "busy" / "0").touch()
    rmdir, names = os.rmdir, itertools.count(1)

    def written_to_meanwhile(path: str, *, dir_fd: int | None = None) -> None:
        if path == "busy":
            (tree / "busy" / str(next(names))).touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", written_to_meanwhile)
    with pytest.raises(OSError, match=r"not empty|1 s did not suffice; the next attempt goes on"):
        trees.remove(tree)


def test_tree_that_no_process_writes_to_goes_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_MOST_S", 0.0)
    tree = tmp_path / "tree"
    for number in range(3):
        (tree / f"d{number}").mkdir(parents=True)
        (tree / f"d{number}/file").touch()
    with pytest.raises(OSError, match="0 s did not suffice"):
        trees.remove(tree)
    trees.remove(tree, most_s=math.inf)
    assert not tree.exists()
