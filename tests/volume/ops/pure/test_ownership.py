"""fsGroup: ownership and permissions afterwards, and repeats of interrupted walks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.volume.ops.ownership import matches, set_ownership, wanted_mode

GROUP = 4242


@pytest.mark.parametrize(
    ("mode", "read_only", "expected"),
    [
        (stat.S_IFREG | 0o600, False, 0o660),
        (stat.S_IFREG | 0o400, True, 0o440),
        (stat.S_IFREG | 0o4755, False, 0o4775),
        (stat.S_IFDIR | 0o700, False, 0o2770),
        (stat.S_IFDIR | 0o755, True, 0o2755),
        (stat.S_IFDIR | 0o1777, False, 0o3777),
    ],
)
def test_group_gets_permissions_and_existing_ones_stay(mode: int, read_only: bool, expected: int) -> None:
    assert wanted_mode(mode, read_only=read_only) == expected


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "volume"
    (path / "a/b").mkdir(parents=True)
    for name in ("f", "a/f", "a/b/f"):
        (path / name).write_text("x")
        (path / name).chmod(0o600)
    (tmp_path / "outside").write_text("x")
    (tmp_path / "outside").chmod(0o600)
    (path / "link").symlink_to(tmp_path / "outside")
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield path, fd
    os.close(fd)


def groups(path: Path) -> dict[str, int]:
    """Of everything in the volume and the volume itself, links not followed."""
    return {str(one.relative_to(path)): one.lstat().st_gid for one in (path, *path.rglob("*"))}


@pytest.mark.needs("root")  # to change groups
def test_ownership_changes_stay_inside_the_volume(volume: tuple[Path, int]) -> None:
    path, fd = volume
    set_ownership(fd, GROUP, read_only=False)
    assert set(groups(path).values()) == {GROUP}
    outside = (path.parent / "outside").stat()
    assert (outside.st_gid, stat.S_IMODE(outside.st_mode)) == (0, 0o600)
    assert stat.S_IMODE((path / "a/b").stat().st_mode) == 0o2775
    assert stat.S_IMODE((path / "a/b/f").stat().st_mode) == 0o660


@pytest.mark.needs("root")  # to change groups
@pytest.mark.parametrize(("mode", "expected"), [(0o4755, 0o4775), (0o2755, 0o2775), (0o6710, 0o6770)])
def test_setuid_and_setgid_bits_of_files_stay(volume: tuple[Path, int], mode: int, expected: int) -> None:
    path, fd = volume
    os.chown(path / "a/f", 1000, 1000)
    (path / "a/f").chmod(mode)
    set_ownership(fd, GROUP, read_only=False)
    status = (path / "a/f").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1000, GROUP, expected)


@pytest.mark.parametrize("link", [False, True])
def test_directory_that_cannot_be_opened_fails_the_walk(volume: tuple[Path, int], link: bool) -> None:
    path, fd = volume

    def replace(files: int = 0) -> None:
        if (path / "a").is_dir() and not (path / "a").is_symlink():
            (path / "a").rename(path.parent / "moved")
            (path / "a").symlink_to(path.parent / "moved") if link else (path / "a").touch()

    with pytest.raises(NotADirectoryError):
        set_ownership(fd, os.getgid(), read_only=False, progress=replace)
    assert stat.S_IMODE((path.parent / "moved/f").stat().st_mode) == 0o600


class Killed(Exception):
    """Stands for a killed helper."""


@pytest.mark.needs("root")  # to change groups
@pytest.mark.parametrize("after", range(1, 7))
def test_interrupted_walk_starts_over_with_on_root_mismatch(volume: tuple[Path, int], after: int) -> None:
    path, fd = volume
    left = after

    def killed(files: int = 0) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed

    with pytest.raises(Killed):
        set_ownership(fd, GROUP, read_only=False, policy="OnRootMismatch", progress=killed)
    assert not matches(fd, GROUP, read_only=False)
    set_ownership(fd, GROUP, read_only=False, policy="OnRootMismatch")
    assert set(groups(path).values()) == {GROUP}


@pytest.mark.needs("root")  # to change groups
def test_on_root_mismatch_skips_a_matching_root(volume: tuple[Path, int]) -> None:
    path, fd = volume
    set_ownership(fd, GROUP, read_only=False)
    os.chown(path / "a/f", 0, 0)
    set_ownership(fd, GROUP, read_only=False, policy="OnRootMismatch")
    assert groups(path)["a/f"] == 0
    set_ownership(fd, GROUP, read_only=False, policy="Always")
    assert groups(path)["a/f"] == GROUP
