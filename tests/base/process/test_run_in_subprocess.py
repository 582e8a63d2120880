"""Functions in a child process: results, errors, deadlines and open files."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._base import deaths
from actors._base.process.run_in_subprocess import SubprocessError, run_each_in_subprocess, run_in_subprocess
from tests.harness import wait_for

DEADLINE_S = 20.0


def children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
        return listed.read().split()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No child and no open file that was not there before; what others have may come to its end meanwhile."""
    before, open_before = set(children()), set(os.listdir("/proc/self/fd"))
    yield
    wait_for(lambda: set(children()) <= before, 10, "no child is left")
    wait_for(lambda: set(os.listdir("/proc/self/fd")) <= open_before, 10, "no file is left open")


def test_large_results_come_back_whole() -> None:
    assert run_in_subprocess(lambda: b"", DEADLINE_S) == b""
    assert run_in_subprocess(lambda: bytes(range(256)) * 20_000, DEADLINE_S) == bytes(range(256)) * 20_000


def test_answers_do_not_wait_for_the_childs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    wait = os.waitpid

    def wait_late(pid: int, options: int) -> tuple[int, int]:
        assert done.wait(DEADLINE_S)
        return wait(pid, options)

    monkeypatch.setattr(os, "waitpid", wait_late)
    try:
        assert run_in_subprocess(lambda: b"answer", DEADLINE_S) == b"answer"
        assert not done.is_set()
    finally:
        done.set()


def test_child_has_no_file_of_its_parent_open() -> None:
    with open("/dev/null", "rb") as mine:
        answer = run_in_subprocess(lambda: " ".join(os.listdir("/proc/self/fd")).encode(), DEADLINE_S).decode().split()
        assert str(mine.fileno()) not in answer
        assert len(answer) <= 5  # the standard streams, the pipe, and the listing's own


def test_timeout_is_raised() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="took too long"):
        run_in_subprocess(lambda: signal.pause() or b"", 0.05)  # type: ignore[func-returns-value]
    assert time.monotonic() - began < DEADLINE_S


def test_alarm_of_the_child_is_a_timeout() -> None:
    """It comes first when the machine stands still for longer than the deadline."""
    with pytest.raises(TimeoutError, match="took too long"):
        run_in_subprocess(lambda: os.kill(os.getpid(), signal.SIGALRM) or b"", DEADLINE_S)  # type: ignore[func-returns-value]


def test_exception_is_a_subprocess_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SubprocessError, match="failed: KeyError, see the log"):
        run_in_subprocess(lambda: {}["secret"], DEADLINE_S)
    assert "KeyError: 'secret'" in capfd.readouterr().err


def test_killed_child_is_a_subprocess_error() -> None:
    with pytest.raises(SubprocessError, match="ended by signal 9"):
        run_in_subprocess(lambda: os.kill(os.getpid(), signal.SIGKILL) or b"", DEADLINE_S)  # type: ignore[func-returns-value]


def test_traceback_is_indented_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> bytes:
        raise ValueError("bad\nE1123 04:05:06.000001 supervisor  the disk is on fire\x1b[2J")

    with pytest.raises(SubprocessError):
        run_in_subprocess(fail, DEADLINE_S)
    said = capfd.readouterr().err
    assert "the disk is on fire" in said
    assert all(line.startswith("    ") for line in said.splitlines())
    assert "\x1b" not in said


def test_process_ends_with_its_record_for_any_error_text(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            deaths.crash(str(tmp_path), "toy", 1, OSError("no such file: b\udcff\nE1123 forged"))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == deaths.CRASH_EXIT_CODE
    assert "b\\udcff" in deaths.record_path(str(tmp_path), "toy", 1).read_text()


def test_each_function_has_its_own_answer_or_error() -> None:
    def die() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    def hang() -> bytes:
        signal.pause()
        return b""

    def fail() -> bytes:
        raise KeyError

    found = run_each_in_subprocess([lambda: b"1", fail, lambda: b"2", die, lambda: b"3", hang, lambda: b""], 5.0)
    assert [one for one in found if isinstance(one, bytes)] == [b"1", b"2", b"3", b""]
    assert [type(found[index]) for index in (1, 3, 5)] == [SubprocessError, SubprocessError, TimeoutError]
    assert "KeyError" in str(found[1])
    assert "signal 9" in str(found[3])
    assert run_each_in_subprocess([], 1.0) == []
