"""Tails, and following a file through rotation, compression and truncation."""

from __future__ import annotations

import gzip
import io
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from actors._logs import reading
from actors._logs.reading import LogReader, tail_offset


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SETTLE_S", 0.0)


def drain(reader: LogReader, *, final: bool = False) -> bytes:
    parts = b""
    while part := reader.read(final=final):
        parts += part
    return parts


@pytest.mark.parametrize("block", [1, 2, 3, 7, 4096])
@pytest.mark.parametrize("text", [b"", b"a\n", b"a\nb\nc\n", b"a\n\nb\n\n", b"a\nb", b"long line\n" * 5])
def test_tail_has_the_last_lines_for_any_block_size(text: bytes, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TAIL_BLOCK", block)
    for count in range(8):
        offset = tail_offset(io.BytesIO(text), count)
        lines = text.splitlines(keepends=True)
        assert text[offset:] == b"".join(lines[len(lines) - count :] if count < len(lines) else lines)


def test_appended_lines_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\ntwo\n")
    reader = LogReader(path, tail=1)
    assert drain(reader) == b"two\n"
    with path.open("ab") as file:
        file.write(b"three")
    assert drain(reader) == b"three"
    assert drain(reader) == b""
    reader.close()


def rotate(path: Path, stamp: str, compress: bool) -> None:
    """As container_gc does it, one rotation after the other."""
    old = path.with_name(f"{path.name}.{stamp}")
    path.rename(old)
    if compress:
        old.with_name(f"{old.name}.gz").write_bytes(gzip.compress(old.read_bytes()))
        old.unlink()


def test_tail_has_no_line_that_came_after_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\ntwo\n")
    reader = LogReader(path, tail=1, grows=False)
    with path.open("ab") as file:
        file.write(b"three\n")
    assert reader.read(final=True) == b"two\n"
    path.rename(tmp_path / "0.log.20261120-133433")
    path.write_bytes(b"four\n")
    reader.check_rotation()
    assert reader.read(final=True) == b""
    reader.close()


def test_rotation_loses_and_repeats_no_line(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"")
    reader = LogReader(path)
    wanted, found = b"", b""
    for number in range(60):
        line = b"line %d\n" % number
        with path.open("ab") as file:
            file.write(line)
        wanted += line
        if number % 3 == 2:
            rotate(path, f"20261120-1334{number:02d}", compress=number % 2 == 0)
            if number % 2:
                reader.check_rotation()  # between the rename and the new file
            path.write_bytes(b"")
            reader.check_rotation()
        if number % 7 == 0:
            found += drain(reader)
    assert found + drain(reader) == wanted
    reader.close()


def test_late_lines_of_a_rotated_file_are_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SETTLE_S", 3600.0)
    path = tmp_path / "0.log"
    path.write_bytes(b"one\n")
    reader = LogReader(path)
    with path.open("ab") as late:
        path.rename(tmp_path / "0.log.20261120-133433")
        path.write_bytes(b"three\n")
        reader.check_rotation()
        assert drain(reader) == b"one\n"
        late.write(b"two\n")
    assert reader.behind
    assert drain(reader) == b"two\n"
    assert drain(reader, final=True) == b"three\n"
    reader.close()


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"a long line that was there\n")
    reader = LogReader(path)
    assert drain(reader)
    os.truncate(path, 0)
    assert drain(reader) == b""
    with path.open("ab") as file:
        file.write(b"new\n")
    assert drain(reader) == b"new\n"
    reader.close()


def held_below(directory: Path) -> int:
    """The number of open files of the directory, deleted ones too."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            found += str(one.readlink()).startswith(f"{directory}/")
    return found


def test_stalled_reader_keeps_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"first\n")
    reader = LogReader(path)
    assert held_below(tmp_path) == 1
    for number in range(reading.MAX_HELD + 10):
        path.unlink()
        path.write_bytes(b"%d\n" % number)
        reader.check_rotation()
    assert held_below(tmp_path) <= 1 + reading.MAX_HELD
    text = drain(reader)
    assert text.startswith(b"first\n")
    assert text.endswith(b"25\n")
    reader.close()
    assert held_below(tmp_path) == 0


@pytest.mark.parametrize("compressed", [(), ("a",), ("a", "b"), ("a", "b", "c")])
def test_unnoticed_rotations_are_found_by_their_names(tmp_path: Path, compressed: tuple[str, ...]) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"1\n2\n")
    (tmp_path / "0.log.A").write_bytes(b"older than the reader\n")
    (tmp_path / "0.log.b.tmp").write_bytes(b"half")
    reader = LogReader(path)
    assert reader.read() == b"1\n2\n"
    for stamp, text in (("a", b"3\n"), ("b", b"4\n" * 100_000), ("c", b"5\n")):
        with path.open("ab") as file:
            file.write(b"last of its file\n")
        path.rename(tmp_path / f"0.log.{stamp}")
        path.write_bytes(text)
    for stamp in compressed:
        old = tmp_path / f"0.log.{stamp}"
        (tmp_path / f"0.log.{stamp}.gz").write_bytes(gzip.compress(old.read_bytes()))
        old.unlink()
    reader.check_rotation()
    last = b"last of its file\n"
    assert drain(reader) == last + b"3\n" + last + b"4\n" * 100_000 + last + b"5\n"
    assert drain(reader, final=True) == b""
    reader.close()


def test_replaced_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"1\n")
    reader = LogReader(path)
    path.unlink()
    (tmp_path / "0.log.a").write_bytes(b"nothing of this reader's\n")
    path.write_bytes(b"2\n")
    reader.check_rotation()
    assert drain(reader) == b"1\n2\n"
    reader.close()


def test_close_during_a_read_takes_effect_after_it(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"1\n")
    reader = LogReader(path)
    held = reader._files[0].file
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def read(self, size: int) -> bytes:
            begun.set()
            assert go_on.wait(20)
            assert not held.closed, "its number may be somebody's connection by now"
            return held.read(size)

        def close(self) -> None:
            held.close()

    reader._files[0] = reader._files[0]._replace(file=Slow())  # type: ignore[arg-type]
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(reader.read()))
    thread.start()
    assert begun.wait(20)
    reader.close()
    go_on.set()
    thread.join(20)
    assert found == [b"1\n"]
    assert held.closed
    assert reader.read() == b""
