"""Files parsed in a child process: a file that kills or blocks it does not affect the others."""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

import pytest

from actors._files import reading
from actors._files.reading import Reader


class Read(NamedTuple):
    text: str = ""
    why: str = ""


def read(path: str, content: bytes) -> Read:
    if path == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if path == "hangs":
        signal.pause()
    return Read(content.decode())


@pytest.mark.parametrize("bad", ["dies", "hangs"])
def test_unreadable_file_does_not_affect_the_others(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILE_S", 5.0 if bad == "hangs" else 20.0)  # longer than a machine may stand still
    reader = Reader(Read, read, lambda _, why: Read(why=why))
    found = reader.read({"a": b"1", bad: b"2", "b": b"3"})
    assert (found["a"], found["b"]) == (Read("1"), Read("3"))
    assert found[bad].why.startswith("cannot be read: the child process ")
    assert reader.read({"a": b"1", "b": b"3"}) == {"a": Read("1"), "b": Read("3")}


def test_hanging_files_end_within_the_longest_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILE_S", 5.0)  # longer than a machine may stand still
    reader = Reader(Read, lambda path, content: read(path.rstrip("0123456789"), content), lambda _, why: Read(why=why))
    contents = {f"hangs{number}": b"" for number in range(2)} | {"dies": b"", "good": b"1"}
    began = time.monotonic()
    found = reader.read(contents)
    assert time.monotonic() - began < reading.longest_s(contents)
    assert found.pop("good") == Read("1")
    assert "signal 9" in found.pop("dies").why
    assert {one.why for one in found.values()} == {"cannot be read: the child process took too long"}
