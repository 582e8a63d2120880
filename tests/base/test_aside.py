"""Work in a child process: what comes back, what ends it, what it leaves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from actors._base.aside import AsideError, aside
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


def test_what_it_returns_however_large() -> None:
    assert aside(lambda: b"", DEADLINE_S) == b""
    assert aside(lambda: bytes(range(256)) * 20_000, DEADLINE_S) == bytes(range(256)) * 20_000


def test_it_has_no_file_of_its_parents_open() -> None:
    with open("/dev/null", "rb") as mine:
        answer = aside(lambda: " ".join(os.listdir("/proc/self/fd")).encode(), DEADLINE_S).decode().split()
        assert str(mine.fileno()) not in answer
        assert len(answer) <= 5  # the standard streams, the pipe, and the listing's own


def test_it_takes_too_long() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="took too long"):
        aside(lambda: signal.pause() or b"", 0.05)  # type: ignore[func-returns-value]
    assert time.monotonic() - began < DEADLINE_S


def test_it_raises(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AsideError, match="failed: KeyError, see the log"):
        aside(lambda: {}["secret"], DEADLINE_S)
    assert "KeyError: 'secret'" in capfd.readouterr().err


def test_it_dies() -> None:
    with pytest.raises(AsideError, match="ended by signal 9"):
        aside(lambda: os.kill(os.getpid(), signal.SIGKILL) or b"", DEADLINE_S)  # type: ignore[func-returns-value]
