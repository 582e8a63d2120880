"""Errors of the system as one line for people: a full disk, a missing file, too few descriptors."""

from __future__ import annotations

import errno
import os
import sys

from supervisor.cli.views.output import OutputError

TRACEBACK = "NODEVISOR_TRACEBACK"
"""The environment variable with which such an error keeps its traceback: the cause may be a bug of ours."""


def kinds() -> tuple[type[Exception], ...]:
    """The classes of such errors. ZeroMQ's is no OSError, and exists only in commands that have loaded ZeroMQ."""
    zmq = sys.modules.get("zmq")
    return (OSError,) if zmq is None else (OSError, zmq.ZMQError)


def keeps_traceback(error: Exception, command: str | None) -> bool:
    """True when the error must go on as it is: on request, and in `start`, whose journal keeps tracebacks.

    Also when the reader of the output has closed it: click ends the command without a message then.
    """
    if isinstance(error, BrokenPipeError) or os.environ.get(TRACEBACK):
        return True
    return command == "start" and not isinstance(error, OutputError)


def line_of(error: Exception) -> str:
    """The line for people."""
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, OutputError):
        return f"cannot write the output: {'it is closed' if error.errno == errno.EBADF else reason}"
    if isinstance(error, FileNotFoundError) and error.filename is None and _has_no_directory():
        return "cannot finish: the working directory is deleted; change to another one"
    if getattr(error, "errno", None) == errno.EMFILE:
        return f"cannot finish: {reason}; raise the limit, `ulimit -n`"
    name = getattr(error, "filename", None)
    where = f"{name}: " if name is not None else ""
    return f"cannot finish: {where}{reason}; {TRACEBACK}=1 shows the place in the code"


def _has_no_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False
