"""Runs a function in a forked child process, so that its memory, libraries included, goes back to the system.

It is for rare work with a small result, such as reading YAML files. In the actor itself the arenas for a hundred
manifests would stay allocated: 3 MB for the actor's life.

The child is a fork of a process with threads, of which only the forking thread continues. So the function must neither
log nor use ZeroMQ. The child closes the actor's files. When the actor is killed, the child ends at its next write or by
its own alarm.
"""

from __future__ import annotations

import gc
import math
import os
import select
import signal
import struct
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from proto.common.safe_text import indented

_BLOCK = 1024 * 1024


class SubprocessError(Exception):
    """The child ended without a result; the text gives the cause. A traceback is on the standard error stream."""


Answer = bytes | SubprocessError | TimeoutError


def run_in_subprocess(work: Callable[[], bytes], deadline_s: float) -> bytes:
    """Call `work` in a child of this process and return its result. It blocks: call it in a pool thread.

    Raises TimeoutError after `deadline_s`, SubprocessError when `work` raised or its process died, and OSError when the
    fork fails.
    """
    (answer,) = run_each_in_subprocess([work], deadline_s)
    if isinstance(answer, Exception):
        raise answer
    return answer


def run_each_in_subprocess(works: Sequence[Callable[[], bytes]], deadline_s: float) -> list[Answer]:
    """Call each of `works` in turn in one child and return their results. It blocks: call it in a pool thread.

    A function that raises, dies or takes longer than `deadline_s` has an error as its result, and another child runs
    the rest. Raises OSError when a fork fails.
    """
    done: list[Answer] = []
    while len(done) < len(works):
        done += _in_one_child(works[len(done) :], deadline_s)
    return done


def _reap(pid: int) -> None:
    """Wait for a child in a thread: the kernel takes some 3 ms to free its memory, and the answers are there."""
    try:
        threading.Thread(target=os.waitpid, args=(pid, 0), name="reap-child", daemon=True).start()
    except RuntimeError:  # the limit of threads
        os.waitpid(pid, 0)


def _in_one_child(works: Sequence[Callable[[], bytes]], deadline_s: float) -> list[Answer]:
    """The answers of one child, up to and including the error of the function that ended it; at least one."""
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
            if ended:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            else:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                _reap(pid)
    if ended:
        answers.append(_end(code))
    return answers


def _end(code: int) -> SubprocessError | TimeoutError:
    """Why a child has ended before an answer. After a stall its alarm may come before this process's own deadline."""
    if code == -signal.SIGALRM:
        return TimeoutError(_TOO_LONG)
    return SubprocessError(f"the child process was ended by signal {-code}" if code < 0 else _NO_ANSWER)


_NO_ANSWER = "the child process ended without an answer"
_TOO_LONG = "the child process took too long"
_HEAD = struct.Struct("<?Q")
"""Head of an answer in the pipe: True for a result, False for the name of an exception; then its length."""


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
    return body if good else SubprocessError(f"the child process failed: {body.decode()}, see the log")


def _read(fd: int, size: int, ends: float) -> bytes:
    """Read `size` bytes, fewer at the end of the pipe. Raises TimeoutError."""
    parts: list[bytes] = []
    while size:
        if not select.select([fd], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise TimeoutError(_TOO_LONG)
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
        gc.disable()  # a collection would write to, and so copy, the actor's memory
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


def _close_all_but(pipe: int) -> None:
    """Close all descriptors except standard streams and `pipe`: peers notice the actor's end by its closed sockets."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != pipe:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))
