"""Reads /dev/kmsg without waiting."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable

from actors._base.messaging.bus import Bus
from actors.oom.record import MOST_BYTES, LogRecord, parse_record

PATH = "/dev/kmsg"
DEVICE = os.makedev(1, 11)


def open_log(path: str = PATH) -> int:
    """Open the kernel's log at its oldest record. Raises OSError, also when the file is another one.

    Containers have /dev/kmsg as a link to the console, for example.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != DEVICE:
        os.close(fd)
        raise OSError(errno.ENODEV, "it is not the kernel's log", path)
    return fd


class KernelLog:
    """An open log. `next_record` is for one thread only."""

    def __init__(self, fd: int, read: Callable[[int, int], bytes] = os.read) -> None:
        self._fd = fd
        self._read = read
        self._last: int | None = None
        self._epoll: select.epoll | None = None
        self._resume: Callable[[], object] = lambda: None
        self.lost = 0
        """Records that the kernel overwrote before they were read."""

    def watch(self, bus: Bus, pause_s: float, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` in the I/O thread when there are records, once until `resume`."""
        self._epoll = select.epoll()
        self._epoll.register(self._fd, select.EPOLLIN | select.EPOLLONESHOT)
        self._resume = lambda: bus.call_later(pause_s, self._rearm)
        epoll = self._epoll  # kept open by the bus's watch, also after `stop`

        def take() -> None:
            if epoll.poll(0):
                on_readable()

        bus.watch_fd(epoll.fileno(), take)

    def resume(self) -> None:
        """The log was read to its end: call `on_readable` again, in `pause_s` at the earliest."""
        self._resume()

    def _rearm(self) -> None:
        epoll = self._epoll  # `stop` runs in another thread
        if epoll is not None:
            epoll.modify(self._fd, select.EPOLLIN | select.EPOLLONESHOT)

    def stop(self) -> None:
        """Call `on_readable` no more."""
        self._epoll = None

    def next_record(self) -> LogRecord | None:
        """Return the next record; None at the end of the log. Records of another format are left out. Raises OSError.

        `lost` grows when records were overwritten.
        """
        while True:
            try:
                data = self._read(self._fd, MOST_BYTES)
            except BlockingIOError:
                return None
            except BrokenPipeError:
                continue  # overwritten; the next read is of the oldest record
            record = parse_record(data)
            if record is None:
                continue
            if self._last is not None and record.sequence > self._last + 1:
                self.lost += record.sequence - self._last - 1
            self._last = record.sequence
            return record
