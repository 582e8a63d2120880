"""Sizes of the logs in a tree that changes between looks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from actors.container_gc import log_tree
from actors.container_gc.log_tree import LogTree
from tests.harness import wait_for


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with three logs. Its directories count as settled, and are long unmodified."""
    monkeypatch.setattr(log_tree, "SETTLED_NS", 0)
    root = tmp_path / "pods"
    for path, size in (("ns_a_1/web/0.log", 3), ("ns_a_1/web/1.log", 5), ("ns_b_2/db/0.log", 7)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * size)
    settle(root)
    return root


def settle(root: Path) -> None:
    """Have every directory look as if it was modified long ago, each at a time of its own."""
    before = time.time_ns() - 60_000_000_000
    for number, directory in enumerate([root, *(path for path in root.rglob("*") if path.is_dir())]):
        os.utime(directory, ns=(before + number, before + number))


def sizes(tree: LogTree, root: Path) -> dict[str, int]:
    """By the log's path below `root`."""
    found = {f"{directory}/{name}": size for directory, files in tree.sizes() for name, size in files.items()}
    return {path.removeprefix(f"{root}/"): size for path, size in found.items()}


def now(path: Path) -> int:
    """The file system's time."""
    path.write_bytes(b"")
    return path.stat().st_ctime_ns


class Reads:
    """Counts the directories that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read = os.listdir

        def listdir(path: Any) -> list[str]:
            self.paths.append(str(path))
            return read(path)

        monkeypatch.setattr(log_tree.os, "listdir", listdir)


def test_all_sizes_are_found_again(root: Path) -> None:
    tree = LogTree(str(root))
    expected = {"ns_a_1/web/0.log": 3, "ns_a_1/web/1.log": 5, "ns_b_2/db/0.log": 7}
    assert sizes(tree, root) == expected
    (root / "ns_b_2/db/0.log").write_bytes(b"x" * 9)
    assert sizes(tree, root) == expected | {"ns_b_2/db/0.log": 9}


def test_unchanged_directories_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, reads = LogTree(str(root)), Reads(monkeypatch)
    first = sizes(tree, root)
    assert len(reads.paths) == 5
    assert sizes(tree, root) == first
    assert sizes(tree, root) == first
    assert len(reads.paths) == 5


@pytest.mark.parametrize(
    ("change", "reads_again"),
    [
        (lambda root: (root / "ns_b_2/db/1.log").write_bytes(b"new"), {"ns_b_2/db"}),
        (lambda root: (root / "ns_b_2/db/0.log").unlink(), {"ns_b_2/db"}),
        (lambda root: (root / "ns_b_2/db/0.log").rename(root / "ns_b_2/db/0.log.1"), {"ns_b_2/db"}),
    ],
    ids=["made", "removed", "renamed"],
)
def test_changed_directory_is_read_again(
    root: Path, change: Any, reads_again: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = LogTree(str(root))
    sizes(tree, root)
    reads = Reads(monkeypatch)
    change(root)
    expected = sizes(LogTree(str(root)), root)
    reads.paths.clear()
    assert sizes(tree, root) == expected
    assert {path.removeprefix(f"{root}/") for path in reads.paths} == reads_again


def test_replaced_directory_with_the_same_time_is_read_again(root: Path) -> None:
    tree = LogTree(str(root))
    sizes(tree, root)
    directory = root / "ns_b_2/db"
    status, above = directory.stat(), directory.parent.stat()
    directory.rename(root.parent / "old")
    directory.mkdir()
    (directory / "9.log").write_bytes(b"other")
    os.utime(directory, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(directory.parent, ns=(above.st_atime_ns, above.st_mtime_ns))
    assert "ns_b_2/db/9.log" in sizes(tree, root)


def test_directory_that_has_just_changed_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next change may come within the same tick of the file system's clock."""
    monkeypatch.setattr(log_tree, "SETTLED_NS", 3_600_000_000_000)
    tree, reads = LogTree(str(root)), Reads(monkeypatch)
    assert sizes(tree, root) == sizes(tree, root)
    assert len(reads.paths) == 10


def test_new_log_is_found_though_a_tool_set_the_time_back(root: Path) -> None:
    tree, directory = LogTree(str(root)), root / "ns_b_2/db"
    sizes(tree, root)
    status = directory.stat()
    wait_for(lambda: now(root.parent / "clock") > status.st_ctime_ns, what="a tick of the file system's clock")
    (directory / "1.log").write_bytes(b"new")
    os.utime(directory, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "ns_b_2/db/1.log" in sizes(tree, root)


def test_directory_with_a_time_to_come_is_not_trusted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.time_ns() + 3_600_000_000_000
    os.utime(root / "ns_b_2/db", ns=(later, later))
    tree, reads = LogTree(str(root)), Reads(monkeypatch)
    sizes(tree, root)
    sizes(tree, root)
    assert reads.paths.count(f"{root}/ns_b_2/db") == 2


def test_removed_pods_are_forgotten(root: Path) -> None:
    tree = LogTree(str(root))
    sizes(tree, root)
    (root / "ns_b_2/db/0.log").unlink()
    (root / "ns_b_2/db").rmdir()
    (root / "ns_b_2").rmdir()
    sizes(tree, root)
    settle(root)
    assert set(sizes(tree, root)) == {"ns_a_1/web/0.log", "ns_a_1/web/1.log"}
    assert set(tree._known) == {str(root), f"{root}/ns_a_1", f"{root}/ns_a_1/web"}


def test_symlinks_lead_to_pods_but_not_to_containers(root: Path, tmp_path: Path) -> None:
    (tmp_path / "disk/web").mkdir(parents=True)
    (tmp_path / "disk/web/0.log").write_bytes(b"x" * 11)
    (root / "ns_c_3").symlink_to(tmp_path / "disk")
    (root / "ns_a_1/link").symlink_to(tmp_path / "disk/web")
    (root / "file").write_bytes(b"no directory")
    link = tmp_path / "link"
    link.symlink_to(root)
    found = set(sizes(LogTree(str(link)), link))
    assert found == {"ns_a_1/web/0.log", "ns_a_1/web/1.log", "ns_b_2/db/0.log", "ns_c_3/web/0.log"}


def test_absent_tree_has_no_logs(tmp_path: Path) -> None:
    assert sizes(LogTree(str(tmp_path / "none")), tmp_path) == {}
