"""Environment files of volumes: the format, and that nothing outside of the volume is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.pod_workers.env_file import MAX_BYTES, EnvFileError, parse, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("KEY='value'\n", "value"),
        ("A='1'\nKEY='2'\nKEY='3'", "2"),
        ("  KEY='v'  # why\n", "v"),
        ("# c\n\n \t\nKEY='v'", "v"),
        ("KEY='a\nb\n\n # c'\nB='x'", "a\nb\n\n # c"),
        ("KEY='a=b\"$(C)\\n'", 'a=b"$(C)\\n'),
        ("KEY= 'v'", ""),
        ("KEY=''", ""),
        ("OTHER='v'", ""),
        ("", ""),
        ("KEY='v'\r\n", "v"),
        ("KEY='v'\nbroken", "v"),
    ],
)
def test_a_value(text: str, value: str) -> None:
    assert parse(text, "KEY") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("KEY=v", "line 1: the value must be in single quotes"),
        ("A=\"x\"\nKEY='v'", "line 1: the value must be in single quotes"),
        ("KEY=", "line 1: the value must be in single quotes"),
        ("A='1'\nKEY", "line 2: missing '='"),
        ("KEY ='v'", "line 1: a name without blanks"),
        ("='v'", "line 1: a name without blanks"),
        ("A='1'\nKEY='v", "line 2: the quote is not closed"),
        ("KEY='v'w", "line 1: something stands after the closing quote"),
        ("KEY='" + "x" * 70_000 + "'", "line 1: longer than 65536 bytes"),
    ],
)
def test_what_is_wrong_with_a_file(text: str, problem: str) -> None:
    with pytest.raises(EnvFileError, match=f"^{problem}"):
        parse(text, "KEY")


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
    assert read(volume, path).encode("utf-8", "surrogateescape") == b"KEY='in \xff'"


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
def test_nothing_else_is_read(volume: str, path: str, problem: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvFileError, match=f"^{problem}"):
        read(volume, path)
    assert len(os.listdir("/proc/self/fd")) == before
