"""A command in a container: starts it, waits for it, and ends it when its client has gone.

The OCI runtime's process stays while the command runs, as with `crun exec` in a shell. It has our pipes or the slave of
our terminal, and ends with the command's exit code. All methods block for moments and run in threads.

A killed actor's commands are ended at the next start (containers/orphaned_execs.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import struct
import subprocess
import termios
import threading

from actors.runtime.containers.exec_command import ExecCommand
from actors.runtime.containers.orphaned_execs import HANG_UP_S, end
from actors.runtime.engine.engine import Engine
from actors.runtime.helper.kernel.syscalls import pidfd_getfd
from actors.runtime.model.state import Container
from actors.runtime.streaming.policy import SessionRequest
from actors.runtime.streaming.remotecommand import DROPPED, ProcessStreams

ROWS, COLUMNS = 24, 80
_PTMX = os.makedev(5, 2)
"""The device of each terminal's master (Linux' devices.txt)."""


class ExecFailed(Exception):
    """The command could not be run; the message is the OCI runtime's."""


def copy_size(terminal: int, pid: int, pidfd: int) -> bool:
    """Give the terminal whose master the trusted process `pid` holds the size of ours. Raises OSError.

    False if it holds none, or none yet.
    """
    descriptors = f"/proc/{pid}/fd"
    for name in os.listdir(descriptors):
        file = os.stat(f"{descriptors}/{name}")
        if stat.S_ISCHR(file.st_mode) and file.st_rdev == _PTMX:
            master = pidfd_getfd(pidfd, int(name), f"{descriptors}/{name}")
            try:
                fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))
            finally:
                os.close(master)
            return True
    return False


class Execution:
    """One command. `streams` are its side of a session."""

    def __init__(self, engine: Engine, container: Container, wanted: SessionRequest) -> None:
        """Start the command. Raises OSError, ValueError."""
        self._cgroup = container.record.cgroup
        self._command = ExecCommand(engine, container, wanted.command, tty=wanted.tty)
        self._fds: list[int] = []
        self._terminal = -1
        self._closing = threading.Lock()
        self._begun = False
        try:
            self._start(self._command.line, wanted)
        except BaseException:
            if self._begun:  # as for want of descriptors: no session would end the command
                self.terminate()
            else:
                self._close()
                self._command.remove_files()
            raise

    def _start(self, line: list[str], wanted: SessionRequest) -> None:
        if wanted.tty:
            self._start_on_terminal(line, wanted)
            return
        theirs: list[int] = []
        ours: dict[str, int] = {}
        try:
            for target, kind in enumerate(("stdin", "stdout", "stderr")):
                if kind in wanted.outputs or (kind == "stdin" and wanted.stdin):
                    pipe = self._command.pipe()
                    theirs.append(pipe[bool(target)])
                    ours[kind] = pipe[not target]
                    self._command.give(theirs[-1])
                    os.set_blocking(ours[kind], False)
                else:
                    theirs.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
            self._popen(line, theirs)
        except BaseException:
            self._fds += ours.values()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        stdin = ours.pop("stdin", -1)
        self._fds += ours.values()
        self.streams = ProcessStreams(ours, self._pidfd, stdin)

    def _start_on_terminal(self, line: list[str], wanted: SessionRequest) -> None:
        master, slave = os.openpty()
        self._fds.append(master)
        self._terminal = master
        try:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            self._popen(line, [slave] * 3)
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        outputs = {"stdout" if wanted.stdout else DROPPED: master}
        self.streams = ProcessStreams(
            outputs, self._pidfd, master if wanted.stdin else -1, master, on_resize=self.notify_resize
        )

    def _popen(self, line: list[str], fds: list[int]) -> None:
        stdin, stdout, stderr = fds
        self._process = subprocess.Popen(
            line, stdin=stdin, stdout=stdout, stderr=stderr, cwd="/", start_new_session=True
        )
        self._begun = True
        self._pidfd = os.pidfd_open(self._process.pid)
        self._fds.append(self._pidfd)

    def notify_resize(self) -> None:
        """Copy the size of our terminal to the command's, or make the OCI runtime do it.

        On the signal alone, crun before 1.8.7 leaves the size: https://github.com/containers/crun/pull/1262
        """
        with self._closing:
            if not self._fds:
                return
            with contextlib.suppress(OSError):
                if copy_size(self._terminal, self._process.pid, self._pidfd):
                    return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGWINCH)

    def resize_after_start(self) -> None:
        """Copy the size again after the start: an earlier change found no command."""
        self._wait_started()
        self.notify_resize()

    def _wait_started(self) -> None:
        self._command.wait_started(lambda: self._process.poll() is not None)

    def result(self) -> int:
        """The exit code, after the end. Raises ExecFailed."""
        code = self._process.wait()
        error = self._command.error(code)
        self._close()
        self._command.remove_files()
        if error:
            raise ExecFailed(error)
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        """End the command, whose client has gone: SIGHUP, then SIGKILL."""
        self._close()  # first: a signal needs a descriptor
        self._wait_started()
        try:
            command = self._command.process(self._process)
            if command is not None:
                end({command: self._cgroup})
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(HANG_UP_S)
            self._process.kill()
            self._process.wait()
            self._command.remove_files()

    def _close(self) -> None:
        with self._closing:
            for fd in self._fds:
                os.close(fd)
            self._fds = []
