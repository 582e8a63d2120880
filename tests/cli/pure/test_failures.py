"""The line for an error of the system, and the errors that keep their traceback."""

from __future__ import annotations

import errno

import pytest
import zmq

from supervisor.cli.views import failures
from supervisor.cli.views.output import OutputError

FULL = OutputError(errno.ENOSPC, "No space left on device")
MISSING = FileNotFoundError(errno.ENOENT, "No such file or directory", "/x")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FULL, "cannot write the output: No space left on device"),
        (OutputError(errno.EBADF, "Bad file descriptor"), "cannot write the output: it is closed"),
        (
            MISSING,
            "cannot finish: /x: No such file or directory; NODEVISOR_TRACEBACK=1 shows the place in the code",
        ),
        (zmq.ZMQError(errno.EMFILE), "cannot finish: Too many open files; raise the limit, `ulimit -n`"),
        (OSError("odd"), "cannot finish: odd; NODEVISOR_TRACEBACK=1 shows the place in the code"),
    ],
)
def test_error_is_one_line(error: Exception, line: str) -> None:
    assert isinstance(error, failures.kinds())
    assert failures.line_of(error) == line


@pytest.mark.parametrize(
    ("error", "command", "keeps"),
    [
        (FULL, "ps", False),
        (FULL, "start", False),
        (MISSING, "ps", False),
        (MISSING, "start", True),
        (BrokenPipeError(), "ps", True),
    ],
)
def test_start_and_closed_pipes_keep_their_error(error: Exception, command: str, keeps: bool) -> None:
    assert failures.keeps_traceback(error, command) is keeps


def test_variable_keeps_each_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failures.TRACEBACK, "1")
    assert failures.keeps_traceback(FULL, "ps")
