"""The CRI log format, the file of a container's run, tails and following."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.v1 import Pod, from_dict
from supervisor import logs
from supervisor.logs import LogFormatError, LogLine, NoSuchContainer, Printer

T = "2026-11-20T13:34:33.123456789Z"


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        (b"%b stdout F hello world", LogLine(T, "stdout", False, b"hello world")),
        (b"%b stderr P part", LogLine(T, "stderr", True, b"part")),
        (b"%b stdout F:x=1 tags", LogLine(T, "stdout", False, b"tags")),
        (b"%b stdout F ", LogLine(T, "stdout", False, b"")),
        (b"%b stdout F", LogLine(T, "stdout", False, b"")),
        (b"%b stdout F  two  spaces ", LogLine(T, "stdout", False, b" two  spaces ")),
        (b"%b stdout F \xff\x00", LogLine(T, "stdout", False, b"\xff\x00")),
    ],
)
def test_an_entry_is_parsed(line: bytes, parsed: LogLine) -> None:
    assert logs.parse(line % T.encode()) == parsed


@pytest.mark.parametrize("line", [b"", b"text", b"a b", b"%b stdin F x", b"%b stdout X x", b"%b stdout  x"])
def test_what_is_no_entry_is_an_error(line: bytes) -> None:
    with pytest.raises(LogFormatError):
        logs.parse(line.replace(b"%b", T.encode()))


def test_partial_entries_are_joined_and_get_one_timestamp() -> None:
    printer = Printer(timestamps=True)
    entries = [f"{T} stdout P ab".encode(), f"{T} stdout P cd".encode(), f"{T} stdout F ef".encode()]
    assert b"".join(map(printer.render, entries)) == f"{T} abcdef\n".encode()


def test_old_entries_are_left_out() -> None:
    printer = Printer(since=logs._seconds("2026-11-20T13:00:00Z"))
    assert printer.render(b"2026-11-20T12:59:59.999Z stdout F old") == b""
    assert printer.render(b"2026-11-20T13:00:00.001Z stdout F new") == b"new\n"


def test_a_foreign_line_is_shown_as_it_is() -> None:
    assert Printer(timestamps=True).render(b"not ours") == b"not ours\n"


# Which file


def pod(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> Pod:
    status = {"name": "c", "state": state, "lastState": last or {}, "restartCount": restarts}
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]},
            "status": {"containerStatuses": [status]},
        },
    )


RUNNING: dict[str, Any] = {"running": {}}
ENDED = {"terminated": {"exitCode": 1}}
BACKOFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("given", "previous", "file"),
    [
        (pod(RUNNING), False, "0.log"),
        (pod(RUNNING, ENDED, 2), False, "2.log"),
        (pod(RUNNING, ENDED, 2), True, "1.log"),
        (pod(ENDED, None, 0), False, "0.log"),
        (pod(ENDED, ENDED, 3), True, "2.log"),
        (pod(BACKOFF, ENDED, 3), False, "3.log"),
        (pod(BACKOFF, ENDED, 3), True, "3.log"),
    ],
)
def test_the_file_is_that_of_the_run(given: Pod, previous: bool, file: str) -> None:
    assert logs.log_file("/logs", given, "c", previous=previous) == Path("/logs/n_p_u/c") / file


@pytest.mark.parametrize(
    ("given", "container", "previous", "message"),
    [
        (pod(RUNNING), "x", False, "cannot find container 'x' in pod n/p; it has c, d, i"),
        (pod(RUNNING), "c", True, "cannot find a previous run of container 'c' in pod n/p"),
        (pod({"waiting": {"reason": "ErrImagePull"}}), "c", False, "waiting to start: ErrImagePull"),
        (pod(RUNNING), "d", False, "container 'd' in pod n/p is waiting to start: ContainerCreating"),
    ],
)
def test_a_run_that_never_was_is_said(given: Pod, container: str, previous: bool, message: str) -> None:
    with pytest.raises(NoSuchContainer) as caught:
        logs.log_file("/logs", given, container, previous=previous)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "over"),
    [
        (None, True),
        (pod(RUNNING, None, 1), False),
        (pod(ENDED, None, 1), True),
        (pod(BACKOFF, ENDED, 1), True),
        (pod(RUNNING, ENDED, 2), True),
    ],
    ids=["pod gone", "runs", "ended", "back-off", "next run"],
)
def test_a_followed_run_ends_with_its_container(given: Pod | None, over: bool) -> None:
    assert logs.has_ended(given, "c", 1) is over


# Reading


@pytest.mark.parametrize("block", [1, 2, 3, 7, 4096])
@pytest.mark.parametrize("text", [b"", b"a\n", b"a\nb\nc\n", b"a\n\nb\n\n", b"a\nb", b"long line\n" * 5])
def test_a_tail_is_the_last_lines_whatever_the_block(text: bytes, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BLOCK", block)
    for count in range(8):
        offset = logs.tail_offset(io.BytesIO(text), count)
        lines = text.splitlines(keepends=True)
        assert text[offset:] == b"".join(lines[len(lines) - count :] if count < len(lines) else lines)


def _follow(path: Path, over: threading.Event, **more: Any) -> Iterator[bytes]:
    return logs.follow(path, over.is_set, sleep=lambda _: over.wait(0.005), **more)


def test_following_gives_what_is_added_and_ends_with_the_run(tmp_path: Path) -> None:
    path, over = tmp_path / "0.log", threading.Event()
    path.write_bytes(b"one\ntwo\n")
    lines = _follow(path, over, tail=1)
    assert next(lines) == b"two"
    with path.open("ab") as file:
        file.write(b"thr")
        file.flush()
        threading.Timer(0.05, lambda: (file.write(b"ee\nfour\n"), file.flush(), over.set())).start()
        assert list(lines) == [b"three", b"four"]


def test_following_goes_on_in_the_file_that_rotation_makes(tmp_path: Path) -> None:
    path, over = tmp_path / "0.log", threading.Event()
    path.write_bytes(b"one\n")
    lines = _follow(path, over)
    assert next(lines) == b"one"
    with path.open("ab") as file:
        file.write(b"last of the old\n")
    path.rename(tmp_path / "0.log.20261120-133433")
    path.write_bytes(b"first of the new\n")
    assert next(lines) == b"last of the old"
    assert next(lines) == b"first of the new"
    os.unlink(path)
    over.set()
    assert list(lines) == []


def test_what_was_written_before_the_end_was_seen_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\n")

    def write_and_end() -> bool:
        with path.open("ab") as file:
            file.write(b"final\n")
        return True

    assert list(logs.follow(path, write_and_end)) == [b"one", b"final"]
