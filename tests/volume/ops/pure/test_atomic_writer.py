"""Replacing a volume's files: plans, the result on disk, kills in the middle, and torn reads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.volume.ops import atomic_writer
from actors.volume.ops.atomic_writer import Plan, plan
from actors.volume.steps.volumes import File
from tests.deep_trees import nest

A, B = (b"a", 0o644), (b"b", 0o644)
OLD = "..2026_01_02_03_04_05.000000001"
OLDER = "..2025_01_02_03_04_05.000000001"


@pytest.mark.parametrize(
    ("wanted", "present", "entries", "expected"),
    [
        ({"a": A}, None, [], Plan(True, ("a",))),
        ({"a": A}, {"a": A}, ["a", "..data", OLD], Plan(False)),
        ({"a": A}, {"a": A}, ["..data", OLD], Plan(False, ("a",))),  # died before the link
        ({"a": A}, {"a": A}, ["a", "b", "..data", OLD, OLDER], Plan(False, (), ("b",), (OLDER,))),  # before the end
        ({"a": B}, {"a": A}, ["a", "..data", OLD], Plan(True, (), (), (OLD,))),
        ({"a": (b"a", 0o600)}, {"a": A}, ["a", "..data", OLD], Plan(True, (), (), (OLD,))),
        ({"b": A}, {"a": A}, ["a", "..data", OLD], Plan(True, ("b",), ("a",), (OLD,))),
        ({"d/x": A, "d/y": A}, {"d/x": A}, ["d", "..data", OLD], Plan(True, (), (), (OLD,))),
        ({}, {"a": A}, ["a", "..data", OLD], Plan(True, (), ("a",), (OLD,))),
        ({}, None, [], Plan(True)),
    ],
)
def test_plan_of_directory_changes(
    wanted: dict[str, tuple[bytes, int]],
    present: dict[str, tuple[bytes, int]] | None,
    entries: list[str],
    expected: Plan,
) -> None:
    links = {name: name not in (OLD, OLDER) for name in entries}
    assert plan(wanted, present, links, OLD if present is not None else "") == expected


def test_plan_keeps_directories_of_other_mounts() -> None:
    entries = {"data": False, "b": True, "a": True, "..data": True, OLD: False}
    assert plan({"a": B}, {"a": A, "b": A}, entries, OLD) == Plan(True, (), ("b",), (OLD,))
    assert plan({"a": A, "data": A}, {"a": A, "data": A}, entries, OLD) == Plan(False, (), ("b",), ())


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield tmp_path, fd
    os.close(fd)


def visible(path: Path) -> dict[str, bytes]:
    """As a container reads it: through the links, from the directory."""
    return {
        f"{top}/{name}".removeprefix(f"{path}/"): Path(top, name).read_bytes()
        for head in os.listdir(path)
        if not head.startswith("..")
        for top, _, names in (os.walk(path / head) if (path / head).is_dir() else [(path, (), [head])])
        for name in names
    }


def test_former_files_go_however_deep_a_container_has_nested_them(volume: tuple[Path, int]) -> None:
    path, fd = volume
    atomic_writer.write(fd, (File("a", b"1", 0o400),))
    nest(path / os.readlink(path / "..data"), 1500)
    assert atomic_writer.write(fd, (File("a", b"2", 0o400),))
    assert visible(path) == {"a": b"2"}
    assert len(os.listdir(path)) == 3


def test_the_layout_is_the_kubelets(volume: tuple[Path, int]) -> None:
    path, fd = volume
    before = os.umask(0o077)
    try:
        assert atomic_writer.write(fd, (File("a", b"1", 0o400), File("d/e/f", b"2", 0o644)))
    finally:
        os.umask(before)
    stamp = os.readlink(path / "..data")
    assert stamp.startswith("..20")
    assert sorted(os.listdir(path)) == sorted(["..data", stamp, "a", "d"])
    assert os.readlink(path / "a") == "..data/a"
    assert os.readlink(path / "d") == "..data/d"
    assert (path / "a").stat().st_mode & 0o777 == 0o400
    assert (path / stamp).stat().st_mode & 0o777 == 0o755
    assert (path / "d/e").stat().st_mode & 0o777 == 0o755
    assert not atomic_writer.write(fd, (File("a", b"1", 0o400), File("d/e/f", b"2", 0o644))), "nothing to do"
    assert os.readlink(path / "..data") == stamp


def test_leftovers_of_a_killed_writer_are_removed(volume: tuple[Path, int]) -> None:
    path, fd = volume
    atomic_writer.write(fd, (File("a", b"1", 0o644),))
    (path / "..2026_01_01_00_00_00.1").mkdir()
    (path / "..2026_01_01_00_00_00.1/half").write_text("x")
    (path / "..data_tmp").symlink_to("..2026_01_01_00_00_00.1")
    (path / "gone").symlink_to("..data/gone")
    assert atomic_writer.write(fd, (File("a", b"2", 0o644),))
    assert sorted(os.listdir(path)) == sorted(["..data", os.readlink(path / "..data"), "a"])
    assert visible(path) == {"a": b"2"}


def test_mount_point_beside_the_files_stays_through_changes(volume: tuple[Path, int]) -> None:
    path, fd = volume
    (path / "data/deep").mkdir(parents=True)
    for version in (b"1", b"2", b"2", b"3"):
        atomic_writer.write(fd, (File("a", version, 0o644), File(f"only{version.decode()}", b"x", 0o644)))
    assert (path / "data/deep").is_dir()
    assert (path / "a").read_bytes() == b"3"
    assert sorted(os.listdir(path)) == sorted(["..data", os.readlink(path / "..data"), "a", "data", "only3"])


@pytest.mark.needs("root")  # to change groups
def test_files_have_their_group_before_they_are_visible(volume: tuple[Path, int]) -> None:
    path, fd = volume
    atomic_writer.write(fd, (File("d/a", b"1", 0o400),), fs_group=4321)
    file, directory = (path / "d/a").stat(), (path / "d").stat()
    assert (file.st_gid, file.st_mode & 0o7777) == (4321, 0o440)
    assert (directory.st_gid, directory.st_mode & 0o7777) == (4321, 0o2755)
    assert path.stat().st_gid == 4321
    assert not atomic_writer.write(fd, (File("d/a", b"1", 0o400),), fs_group=4321)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "d/x", "d/y", "e/f/g"]), st.binary(max_size=3), max_size=5),
        min_size=1,
        max_size=5,
    )
)
def test_after_each_write_exactly_its_files_are_there(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("volume")
    fd = os.open(path, os.O_RDONLY)
    try:
        for version in versions:
            atomic_writer.write(fd, tuple(File(name, data, 0o644) for name, data in version.items()))
            assert visible(path) == version
            assert len([name for name in os.listdir(path) if name.startswith("..")]) == 2
    finally:
        os.close(fd)


def test_no_reader_sees_half_of_a_change(volume: tuple[Path, int]) -> None:
    path, fd = volume
    atomic_writer.write(fd, tuple(File(name, b"0" * 3000, 0o644) for name in ("a", "b")))
    torn: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                data = os.open(path / "..data", os.O_RDONLY)
            except FileNotFoundError:
                continue  # replaced between the reading of the link and the opening of what it names
            try:
                contents = {Path(f"/proc/self/fd/{data}/{name}").read_bytes() for name in ("a", "b")}
            except FileNotFoundError:
                continue  # replaced twice since it was opened: gone, but not mixed
            finally:
                os.close(data)
            if len(contents) != 1 or len(set(contents.pop())) != 1:
                torn.append("torn")

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        atomic_writer.write(fd, tuple(File(name, b"%d" % (number % 10) * 3000, 0o644) for name in ("a", "b")))
    stop.set()
    reader.join()
    assert torn == []
