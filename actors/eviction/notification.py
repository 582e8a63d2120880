"""Has the kernel tell of short memory, so that eviction looks at once.

With kernelMemcgNotification, cgroup v1 signals an eventfd at the usage that meets the highest threshold.
Source: section 9 of admin-guide/cgroup-v1/memory.rst of Linux, and pkg/kubelet/eviction/memory_threshold_notifier.go of
Kubernetes 1.36.

On cgroup v2 the kubelet only polls. Here PSI triggers of the machine and of all pods tell, and the pods' memory.events.
Source: accounting/psi.rst and admin-guide/cgroup-v2.rst of Linux.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from inotify_simple import INotify, flags

from actors._base.messaging.bus import Bus
from actors._cgroup import figures
from actors._cgroup.hierarchy import Hierarchy

log = logging.getLogger(__name__)

TOLERANCE = 16 << 20
"""Bytes by which the usage may differ from a better one before the kernel is asked again."""
PAUSE_S = 1.0
"""Shortest time between two looks for a notice."""
MACHINE_STALLS = "/proc/pressure/memory"
TRIGGERS = (b"some 100000 1000000\0", b"some 200000 2000000\0")
"""Tasks waited for memory for a tenth of the last second or two. The kernel overwrites the last byte.

Without CAP_SYS_RESOURCE the kernel takes only multiples of 2 s.
"""


def ask_kernel(directory: str, usage_bytes: int) -> int:
    """Return an eventfd, readable after usage crosses this number in either direction. Raises OSError.

    `directory` is a cgroup of the memory controller. Closing the eventfd ends the request.
    """
    event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    opened = [event]
    try:
        opened.append(os.open(f"{directory}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC))
        opened.append(os.open(f"{directory}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC))
        os.write(opened[2], f"{event} {opened[1]} {usage_bytes}".encode())
    except OSError:
        os.close(opened.pop(0))
        raise
    else:
        opened.pop(0)
    finally:
        for fd in opened:
            os.close(fd)
    return event


def usage_at(directory: str, capacity: int, threshold: int) -> int:
    """Return the usage in bytes at which less than `threshold` is available. Raises OSError.

    Page cache that is not in use counts as available.
    """
    return capacity - threshold + figures.stat(f"{directory}/memory.stat").get("total_inactive_file", 0)


@dataclass(frozen=True, slots=True)
class Source:
    """A file of cgroup v2 that tells of short memory."""

    kind: Literal["stalls", "events"]
    path: str


def sources(tree: Hierarchy, pods: str) -> tuple[Source, ...]:
    """Return the files to watch; none on v1. `pods`: the cgroup of all pods."""
    where = tree.path("memory", pods)
    if not tree.unified or where is None:
        return ()
    return (
        Source("stalls", MACHINE_STALLS),
        Source("stalls", f"{where}/memory.pressure"),
        Source("events", f"{where}/memory.events"),
    )


class Notice(NamedTuple):
    """One open request to the kernel."""

    fd: int
    """Readable after an event."""
    take: Callable[[], bool]
    """Drops the present events; False when there can be no further ones."""
    close: Callable[[], None]
    """Ends the request. Only when `fd` is not watched any more."""


def of_usage(directory: str, usage_bytes: int) -> Notice:
    """Ask for notices of usage on v1. Raises OSError."""
    fd = ask_kernel(directory, usage_bytes)

    def take() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(fd)
        return True

    return Notice(fd, take, lambda: os.close(fd))


def of_source(source: Source) -> Notice:
    """Ask for notices of a file of v2. Raises OSError."""
    return _of_events(source.path) if source.kind == "events" else _of_stalls(source.path)


def _of_events(path: str) -> Notice:
    watch = INotify(nonblocking=True)
    try:
        watch.add_watch(path, flags.MODIFY)
    except OSError:
        watch.close()
        raise

    def take() -> bool:
        return all(not one.mask & flags.IGNORED for one in watch.read(timeout=0))  # ignored: the file is gone

    return Notice(watch.fileno(), take, watch.close)


def _of_stalls(path: str) -> Notice:
    trigger = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    poller = select.epoll()  # the bus waits for input only, a trigger is no input
    try:
        _write_first(trigger, TRIGGERS)
        poller.register(trigger, select.EPOLLPRI)
    except OSError:
        poller.close()
        os.close(trigger)
        raise

    def take() -> bool:
        return not any(mask & select.EPOLLERR for _, mask in poller.poll(0))  # an error: the cgroup is gone

    def close() -> None:
        poller.close()
        os.close(trigger)

    return Notice(poller.fileno(), take, close)


def _write_first(fd: int, texts: tuple[bytes, ...]) -> None:
    """Write the first text that the kernel takes. Raises OSError when it takes none."""
    for text in texts[:-1]:
        with contextlib.suppress(OSError):
            os.write(fd, text)
            return
    os.write(fd, texts[-1])


class Notices:
    """The open requests, by path. All methods run in the actor's thread; `look` is called in the I/O thread."""

    def __init__(self, bus: Bus, wanted: tuple[Source, ...], look: Callable[[str, bool], None]) -> None:
        """`look` gets the path of a notice, and False when the request has ended.

        The caller then calls `drop`, else `resume` after a pause: memory around the threshold must cost little.
        """
        self._bus, self._look = bus, look
        self._sources = {one.path: one for one in wanted}
        self._open: dict[str, Notice] = {}
        self._usage = 0

    def paths(self) -> list[str]:
        """Return the paths of the open requests."""
        return sorted(self._open)

    def watch_sources(self) -> None:
        """Watch the files of v2 that are there and not watched yet: the pods' cgroup may come later, or again."""
        for path in [path for path in self._sources if path not in self._open and os.path.exists(path)]:
            try:
                self._open[path] = of_source(self._sources[path])
            except OSError as error:
                log.warning("cannot watch %s: %s; memory is looked at periodically", path, error)
                del self._sources[path]
            self.resume(path)

    def watch_usage(self, directory: str, capacity: int, threshold: int) -> None:
        """Have v1 tell when less than `threshold` is available, unless the last request is near enough.

        Raises OSError.
        """
        usage = usage_at(directory, capacity, threshold)
        if usage <= 0 or abs(usage - self._usage) < TOLERANCE:
            return
        notice = of_usage(directory, usage)
        self.drop(directory)
        self._usage, self._open[directory] = usage, notice
        self.resume(directory)

    def resume(self, path: str) -> None:
        """Watch a request."""
        if (notice := self._open.get(path)) is not None:
            self._bus.watch_fd(notice.fd, lambda: self._readable(path, notice))

    def drop(self, path: str) -> None:
        """Close a request."""
        if (notice := self._open.pop(path, None)) is not None:
            self._bus.unwatch_fd(notice.fd, notice.close)

    def _readable(self, path: str, notice: Notice) -> None:
        self._bus.unwatch_fd(notice.fd)
        self._look(path, notice.take())
