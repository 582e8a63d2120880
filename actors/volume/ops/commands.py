"""Runs programs and system calls that may hang, each in a child process with a deadline.

mount(8) waits for servers, mkfs(8) for a disk. Meanwhile the helper marks progress, so that only the child's deadline
counts. ChildStuck names a child that the kernel keeps beyond SIGKILL.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from actors.volume.steps.errors import ChildStuck

SHOWN_BYTES = 4096
_LOOK_S = 1.0
"""Interval of marks of progress while a command runs."""
_KILLED_S = 1.0
_PR_SET_PDEATHSIG = 1

Progress = Callable[..., object]
"""Called while work goes on; with a number while a volume's files get a new owner: how many have it."""


class Failed(Exception):
    """A program failed: `code` (negative: the signal) and its output; the message is Go's."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"exit status {code}" if code >= 0 else f"signal: {_signal_name(-code)}")
        self.code, self.output = code, output


def run(arguments: list[str], deadline_s: float, progress: Progress, *, dies_with_helper: bool = True) -> str:
    """Run a program and return its output. Raises Failed (code 127: not installed), ChildStuck."""
    prepare = partial(_set_death_signal, os.getpid()) if dies_with_helper else None
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # mount(8) has children, to be killed with it
                preexec_fn=prepare,  # noqa: PLW1509 - it has no threads
            )
        except OSError as error:
            text = f'exec: "{arguments[0]}": {(error.strerror or str(error)).lower()}'
            raise Failed(127, text) from error
        code = _wait(child.pid, deadline_s, progress, group=True)
        child.returncode = code
        output.seek(0)
        written = output.read(SHOWN_BYTES).decode(errors="replace")
    if code != 0:
        raise Failed(code, written)
    return written


def call(act: Callable[[], object], deadline_s: float, progress: Progress) -> None:
    """Do a system call in a child. Raises its OSError, TimeoutError when the child was killed, ChildStuck."""
    helper_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            _set_death_signal(helper_pid)
            act()
        except OSError as error:
            code = min(error.errno or 255, 255)
        except BaseException:
            code = 255
        finally:
            os._exit(code)
    code = _wait(pid, deadline_s, progress, group=False)
    if code < 0:
        raise TimeoutError
    if code:
        raise OSError(code, os.strerror(code))


def _wait(pid: int, deadline_s: float, progress: Progress, *, group: bool) -> int:
    began = time.time()
    pidfd = os.pidfd_open(pid)
    try:
        ends = time.monotonic() + deadline_s
        while (left_s := ends - time.monotonic()) > 0:
            progress()
            if select.select([pidfd], [], [], min(_LOOK_S, left_s))[0]:
                return _reap(pid)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL) if group else os.kill(pid, signal.SIGKILL)
        progress()
        if select.select([pidfd], [], [], _KILLED_S)[0]:
            return _reap(pid)
    finally:
        os.close(pidfd)
    raise ChildStuck(pid, began)


def _reap(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _set_death_signal(helper_pid: int) -> None:
    # A mount that finishes after the helper's end would appear on an abandoned volume.
    import ctypes  # noqa: PLC0415 - the helper has it already

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != helper_pid:  # it has died before
        os._exit(255)


def _signal_name(number: int) -> str:
    return {signal.SIGKILL: "killed", signal.SIGTERM: "terminated"}.get(signal.Signals(number), f"signal {number}")
