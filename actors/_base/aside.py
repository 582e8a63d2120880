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
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

_BLOCK = 1024 * 1024


class AsideError(Exception):
    """The child ended without a result; the text says how. A traceback is on the standard error stream."""


def aside(work: Callable[[], bytes], deadline_s: float) -> bytes:
    """What `work` returns, called in a child of this process. For a pool thread: it waits.

    Raises OSError when there can be no child, TimeoutError, which is one, after `deadline_s`, AsideError when `work`
    raised or died.
    """
    receiving, sending = os.pipe2(os.O_CLOEXEC)
    with open(receiving, "rb", buffering=0) as answers:
        try:
            pid = os.fork()
            if pid == 0:
                _be_the_child(work, sending, deadline_s)
        finally:
            os.close(sending)
        try:
            answer = _read(answers.fileno(), time.monotonic() + deadline_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise
        finally:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"failed: {answer.decode(errors='replace')}, see the log"
        raise AsideError(f"the child process for it {how}")
    return answer


def _read(fd: int, ends: float) -> bytes:
    parts: list[bytes] = []
    while select.select([fd], [], [], max(0.0, ends - time.monotonic()))[0]:
        part = os.read(fd, _BLOCK)
        if not part:
            return b"".join(parts)
        parts.append(part)
    raise TimeoutError("the child process for it took too long")


def _be_the_child(work: Callable[[], bytes], sending: int, deadline_s: float) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # its file is the actor's
        signal.alarm(math.ceil(deadline_s) + 1)
        _close_all_but(sending)
        gc.disable()  # it would touch, and so copy, all that the actor has
        try:
            answer = work()
            code = 0
        except Exception as error:
            os.write(2, traceback.format_exc().encode())
            answer = type(error).__name__.encode()
        left = memoryview(answer)
        while left:
            left = left[os.write(sending, left) :]
    finally:
        os._exit(code)


def _close_all_but(kept: int) -> None:
    """And the standard streams. An actor's peers see it end by its sockets, whoever else has them open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # the listing's own
                os.close(int(name))
