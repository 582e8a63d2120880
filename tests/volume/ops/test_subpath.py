"""Walks to a sub path never leave the volume, with any content and with concurrent changes."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.volume.ops.subpath import open_beneath
from actors.volume.steps.errors import VolumeError


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "volume"
    path.mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("precious")
    fd = os.open(path, os.O_PATH)
    yield path, fd
    os.close(fd)


def walked(fd: int, sub_path: str) -> str:
    """Final path, as the kernel resolves it."""
    found = open_beneath(fd, sub_path)
    try:
        return os.readlink(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def test_links_inside_are_followed_and_directories_made(volume: tuple[Path, int]) -> None:
    path, fd = volume
    path.chmod(0o2770)
    (path / "a/b").mkdir(parents=True)
    (path / "a/b/file").write_text("x")
    (path / "relative").symlink_to("a/b")
    (path / "up").symlink_to("a/../a/b/../b/file")
    (path / "absolute").symlink_to(path / "a")
    (path / "chain").symlink_to("relative/file")
    assert walked(fd, "a/b") == f"{path}/a/b"
    assert walked(fd, "relative/file") == f"{path}/a/b/file"
    assert walked(fd, "up") == f"{path}/a/b/file"
    assert walked(fd, "absolute/b") == f"{path}/a/b"
    assert walked(fd, "chain") == f"{path}/a/b/file"
    assert walked(fd, "new//./deep/er") == f"{path}/new/deep/er"
    assert stat.S_IMODE((path / "new/deep").stat().st_mode) == 0o2770


@pytest.mark.parametrize("mode", [0o750, 0o1777, 0o2770, 0o3777, 0o4755, 0o7777])
def test_missing_directory_gets_the_volumes_full_mode(volume: tuple[Path, int], mode: int) -> None:
    path, fd = volume
    path.chmod(mode)
    walked(fd, "new/deep")
    assert [stat.S_IMODE((path / name).stat().st_mode) for name in ("new", "new/deep")] == [mode, mode]


@pytest.mark.parametrize(
    ("link", "sub_path"),
    [
        ("..", "link/secret"),
        ("../secret", "link"),
        ("a/../../secret", "link"),
        ("/", "link/etc"),
        ("/proc/self/root", "link"),
        ("../volume/a", "link"),
        ("{path}/../volume/a", "link"),
        ("../secret/../volume/a", "link"),
        ("/proc/self/fd/{fd}/a", "link"),
        ("{path}x", "link"),
        ("{path}/..", "link/secret"),
        (".", "link/../secret"),
    ],
)
def test_path_out_of_the_volume_is_refused(volume: tuple[Path, int], link: str, sub_path: str) -> None:
    path, fd = volume
    (path / "a").mkdir()
    (path / "link").symlink_to(link.format(path=path, fd=fd))
    with pytest.raises(VolumeError, match="not within volume path"):
        open_beneath(fd, sub_path)
    with pytest.raises(VolumeError, match="not within volume path"):
        open_beneath(fd, "../secret")


@pytest.mark.parametrize(
    ("link", "sub_path"),
    [
        ("missing", "link"),
        ("missing", "link/directory"),
        ("a/missing", "link"),
        ("a/missing/.", "link"),
        ("../volume/missing", "a/../link"),
        ("{path}/missing", "link"),
        ("other", "link"),
    ],
)
def test_target_of_a_dangling_link_is_not_made(volume: tuple[Path, int], link: str, sub_path: str) -> None:
    path, fd = volume
    (path / "a").mkdir()
    (path / "other").symlink_to("a/missing")
    (path / "link").symlink_to(link.format(path=path))
    with pytest.raises((FileNotFoundError, VolumeError)):
        open_beneath(fd, sub_path)
    assert sorted(one.name for one in path.rglob("*")) == ["a", "link", "other"]
    (path / "a/missing").mkdir()
    assert walked(fd, "other/new") == f"{path}/a/missing/new", "a name behind the link is made"


def test_links_in_a_circle_and_through_files_end(volume: tuple[Path, int]) -> None:
    path, fd = volume
    (path / "one").symlink_to("two")
    (path / "two").symlink_to("one")
    (path / "file").write_text("x")
    with pytest.raises(OSError, match="too many levels"):
        open_beneath(fd, "one")
    with pytest.raises(OSError, match="Not a directory"):
        open_beneath(fd, "file/x")


NAMES = ("a", "b", "c")
TARGETS = (
    "a",
    "b",
    "c",
    ".",
    "..",
    "../..",
    "a/../..",
    "../secret",
    "/",
    "/etc",
    "{path}",
    "{path}/a",
    "{path}/..",
    "b/c",
)


def mutate(path: Path, name: str, kind: str) -> None:
    """One thing a container may do to its volume."""
    target = path / name
    with suppress(OSError):
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.is_dir():
            target.rename(path / f".old-{os.urandom(4).hex()}")
        if kind == "dir":
            target.mkdir()
        elif kind == "file":
            target.write_text("x")
        else:
            target.symlink_to(kind.format(path=path))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(("dir", "file", *TARGETS))), max_size=8),
    st.lists(st.sampled_from((*NAMES, ".", "..")), min_size=1, max_size=5),
)
def test_wherever_links_lead_the_walk_ends_inside(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]], parts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("v") / "volume"
    path.mkdir()
    for name, kind in changes:
        mutate(path, name, kind)
    fd = os.open(path, os.O_PATH)
    try:
        assert f"{walked(fd, '/'.join(parts))}/".startswith(f"{path}/")
    except (VolumeError, OSError):
        pass  # refused, or not there
    finally:
        os.close(fd)
    assert sorted(os.listdir(path.parent)) == ["volume"], "nothing was made outside"


def racing(change: Callable[[int], None]) -> tuple[threading.Event, threading.Thread]:
    stop = threading.Event()

    def run() -> None:
        number = 0
        while not stop.is_set():
            with suppress(OSError):
                change(number)
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    return stop, thread


def test_directory_replaced_by_a_link_is_not_followed(volume: tuple[Path, int]) -> None:
    path, fd = volume
    (path / "real/key").mkdir(parents=True)
    (path / "evil").symlink_to("../secret")
    (path / "x").symlink_to("real")

    def exchange(number: int) -> None:
        link = path / f"next{number % 2}"
        link.symlink_to("../secret" if number % 2 else "real")
        link.rename(path / "x")

    stop, thread = racing(exchange)
    ends: set[str] = set()
    try:
        for _ in range(3000):
            try:
                ends.add(walked(fd, "x/key"))
            except VolumeError:
                ends.add("refused")
    finally:
        stop.set()
        thread.join()
    assert ends <= {f"{path}/real/key", "refused"}


def test_directory_moved_out_of_the_volume_is_not_followed(tmp_path: Path, volume: tuple[Path, int]) -> None:
    path, fd = volume
    (path / "a/b").mkdir(parents=True)
    (path / "in").symlink_to("a/b/../../a/b")

    def move(number: int) -> None:
        if number % 2:
            (path / "a/b").rename(path / "b")
        else:
            (path / "b").rename(path / "a/b")

    stop, thread = racing(move)
    try:
        for _ in range(2000):
            with suppress(OSError, VolumeError):
                assert walked(fd, "in").startswith(f"{path}/")
    finally:
        stop.set()
        thread.join()
    assert sorted(os.listdir(tmp_path)) == ["secret", "volume"]
    assert os.listdir(tmp_path / "secret") == ["key"]
