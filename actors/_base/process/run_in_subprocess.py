"""Work done in a child process that ends with it: what it takes in memory, libraries too, goes back to the system.

For work that is seldom, and large next to what comes of it: reading files of YAML. In the actor itself the arenas that
a hundred manifests need stay with it, 3 MB of its own for as long as it lives.

The child is a fork of a process with threads: only this thread goes on in it, so that it must neither log nor touch
ZeroMQ. It keeps no file of the actor's open, and no lock. When the actor is killed it ends at its next word, or by
its own alarm.
"""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from proto.common.safe_text import indented

_BLOCK = 1024 * 1024


class SubprocessError(Exception):
    """The child ended without a result; the text says how. A traceback is on the standard error stream."""


Answer = bytes | SubprocessError | TimeoutError


def run_in_subprocess(work: Callable[[], bytes], deadline_s: float) -> bytes:
    """What `work` returns, called in a child of this process. For a pool thread: it waits.

    Raises OSError when there can be no child, TimeoutError, which is one, after `deadline_s`, SubprocessError when
    `work` raised or died.
    """
    (answer,) = run_each_in_subprocess([work], deadline_s)
    if isinstance(answer, Exception):
        raise answer
    return answer


def run_each_in_subprocess(works: Sequence[Callable[[], bytes]], deadline_s: float) -> list[Answer]:
    """What each of `works` returns, called one after the other in one child. For a pool thread: it waits.

    One that raises, dies or takes longer than `deadline_s` has its error in its place; another child goes on with those
    after it. Raises OSError when there can be no child.
    """
    done: list[Answer] = []
    while len(done) < len(works):
        done += _in_one_child(works[len(done) :], deadline_s)
    return done


def _in_one_child(works: Sequence[Callable[[], bytes]], deadline_s: float) -> list[Answer]:
    """The answers up to the first that the child did not live to give, that one's error included; at least one."""
    receiving, sending = os.pipe2(os.O_CLOEXEC)
    answers: list[Answer] = []
    with open(receiving, "rb", buffering=0) as pipe:
        try:
            pid = os.fork()
            if pid == 0:
                _be_the_child(works, sending, deadline_s)
        finally:
            os.close(sending)
        ended = False
        try:
            while len(answers) < len(works):
                answer = _answer(pipe.fileno(), time.monotonic() + deadline_s)
                if answer is None:
                    ended = True
                    break
                answers.append(answer)
                if isinstance(answer, TimeoutError):
                    break
        finally:
            if not ended:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended:
        answers.append(
            SubprocessError(f"the child process for it was ended by signal {-code}" if code < 0 else _SILENT)
        )
    return answers


_SILENT = "the child process for it ended without an answer"
_HEAD = struct.Struct("<?Q")
"""Of an answer in the pipe: whether it is one or the name of an exception, and its length."""


def _answer(fd: int, ends: float) -> Answer | None:
    """The next answer; None when the child has ended."""
    try:
        head = _read(fd, _HEAD.size, ends)
        good, size = _HEAD.unpack(head) if len(head) == _HEAD.size else (False, 0)
        body = _read(fd, size, ends)
    except TimeoutError as error:
        return error
    if len(head) < _HEAD.size or len(body) < size:
        return None
    return body if good else SubprocessError(f"the child process for it failed: {body.decode()}, see the log")


def _read(fd: int, size: int, ends: float) -> bytes:
    """So many bytes, fewer at the end. Raises TimeoutError."""
    parts: list[bytes] = []
    while size:
        if not select.select([fd], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise TimeoutError("the child process for it took too long")
        part = os.read(fd, min(size, _BLOCK))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _be_the_child(works: Sequence[Callable[[], bytes]], sending: int, deadline_s: float) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # its file is the actor's
        _close_all_but(sending)
        gc.disable()  # it would touch, and so copy, all that the actor has
        for work in works:
            signal.alarm(math.ceil(deadline_s) + 1)
            try:
                good, answer = True, work()
            except Exception as error:
                os.write(2, indented(traceback.format_exc()).encode(errors="backslashreplace"))
                good, answer = False, type(error).__name__.encode()
            left = memoryview(_HEAD.pack(good, len(answer)) + answer)
            while left:
                left = left[os.write(sending, left) :]
        code = 0
    finally:
        os._exit(code)


def _close_all_but(kept: int) -> None:
    """And the standard streams. An actor's peers see it end by its sockets, whoever else has them open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
