"""Rotates container logs: renames large ones, compresses or removes older ones, and tells the runtime to reopen.

Names are the kubelet's: `0.log` becomes `0.log.20261120-133433`, and `.gz` at the next rotation, which leaves log
shippers the time in between. Sizes come from the disk; the runtime is asked only when a log is due.

A running container's log that was deleted is due, too: the runtime writes into the deleted file until it opens the log
again. `expect` gives the paths of these logs, since an older instance's log in the same directory tells nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from actors._base import gather
from actors._base.messaging.tasks import Semaphore
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors._host.files import listing
from actors._host.files.untrusted_files import open_regular
from actors.container_gc.listing import container_views
from actors.container_gc.log_tree import LogTree
from actors.container_gc.policy import ContainerView
from proto.agent.settings import Settings

log = logging.getLogger(__name__)

COMPRESSED, TEMPORARY = ".gz", ".tmp"
DISK_S = 600.0
"""Deadline for compressing a log on a slow disk."""
_CURRENT = re.compile(r"\d+\.log")
_ROTATED = re.compile(r"(\d+\.log)\..+")

Blocking = Callable[..., Awaitable[Any]]


class Due(NamedTuple):
    """Paths of logs that are too large, and of logs that are not there but may be a running container's."""

    large: frozenset[str]
    missing: frozenset[str]


class Plan(NamedTuple):
    """Rotated files of one log to remove and to compress, by name."""

    remove: tuple[str, ...]
    compress: tuple[str, ...]


def due_in(sizes: dict[str, int], directory: str, max_bytes: int) -> Due:
    """Return the due logs of one container's directory. `sizes`: file name to bytes.

    A log with rotated files only was renamed, and not opened again.
    """
    current = {name for name in sizes if _CURRENT.fullmatch(name)}
    large = {f"{directory}/{name}" for name in current if sizes[name] >= max_bytes}
    rotated = {found[1] for name in sizes if (found := _ROTATED.fullmatch(name))}
    return Due(frozenset(large), frozenset(f"{directory}/{name}" for name in rotated - current))


def plan(names: Iterable[str], max_files: int) -> Plan:
    """Return the plan for the rotated files of one log, before its next rotation.

    Files of an interrupted rotation go. The latest `max_files` - 2 others stay, which leaves room for the current log
    and its next rotated file.
    """
    present = set(names)
    unused = {name for name in present if name.endswith(TEMPORARY) or name + COMPRESSED in present}
    in_use = sorted(present - unused)
    kept = in_use[len(in_use) - min(len(in_use), max(0, max_files - 2)) :]
    compress = tuple(name for name in kept if not name.endswith(COMPRESSED))
    return Plan((*sorted(unused), *in_use[: len(in_use) - len(kept)]), compress)


class LogRotation:
    """Rotates the logs of all containers. The next look finds an interrupted rotation, without a state."""

    def __init__(
        self, cri: RelayedCri, blocking: Blocking, settings: Settings, own: Callable[[Iterable[str]], set[str]]
    ) -> None:
        """`own`: returns the UIDs among its argument that are ours. Blocks."""
        self._cri, self._blocking, self._settings, self._own = cri, blocking, settings, own
        self._tree = LogTree(settings.pod_logs_dir)
        self._semaphore = Semaphore(max(1, settings.container_log_max_workers))
        self._expected: frozenset[str] = frozenset()
        """Logs of our running containers, when the runtime was last asked. An outdated path costs one more call."""
        self.rotated = 0

    def expect(self, containers: Iterable[ContainerView]) -> None:
        """Take our containers of a list call: the next looks miss the running ones' logs."""
        self._expected = frozenset(one.log_path for one in containers if _is_logging(one))

    async def rotate_due(self, spawn: Callable[..., Awaitable[Any]]) -> None:
        """Rotate large logs, and have missing ones opened again. Raises CriError, ActorError, OSError."""
        due: Due = await self._blocking(DISK_S, self._due)
        if not due.large and not due.missing:
            return
        views = container_views(await self._cri.list_containers(), self._settings.pod_logs_dir)
        logging_now = [view for view in views if _is_logging(view)]
        own = await self._blocking(DISK_S, self._own, {view.pod_uid for view in logging_now})
        ours = [view for view in logging_now if view.pod_uid in own]
        self.expect(ours)
        running = {view.log_path: view.id for view in ours}
        for path in await self._blocking(DISK_S, _absent, running):
            await self._reopen(running[path], path)
        await gather(*[spawn(self._rotate(path, running[path])) for path in sorted(due.large & running.keys())])

    def _due(self) -> Due:
        """Return the due logs of all containers. Runs in a thread."""
        large: set[str] = set()
        missing = set(self._expected)
        for directory, sizes in self._tree.sizes():
            found = due_in(sizes, directory, self._settings.container_log_max_bytes)
            large |= found.large
            missing.difference_update(f"{directory}/{name}" for name in sizes)
            missing |= found.missing
        return Due(frozenset(large), frozenset(missing))

    async def _rotate(self, path: str, container_id: str) -> None:
        try:
            async with self._semaphore:
                await self._blocking(DISK_S, self._tidy, path)
                stamped = f"{path}.{time.strftime('%Y%m%d-%H%M%S')}"
                if os.path.lexists(stamped):
                    return  # a second rotation in the same second: wait for the next look
                os.rename(path, stamped)
                if await self._reopen(container_id, path):
                    self.rotated += 1
                elif not os.path.lexists(path):
                    os.rename(stamped, path)
        except OSError as error:
            log.error("cannot rotate the log %s: %s; retrying at the next look", path, error.strerror)

    async def _reopen(self, container_id: str, path: str) -> bool:
        try:
            await self._cri.reopen_container_log(container_id)
        except CriError as error:
            log.error("cannot reopen the log %s after its rotation: %s; retrying at the next look", path, error)
            return False
        return True

    def _tidy(self, path: str) -> None:
        """Make room for one more rotated file. Runs in a thread."""
        directory, name = os.path.split(path)
        rotated = [one for one in listing.names(directory) if one.startswith(f"{name}.")]
        found = plan(rotated, self._settings.container_log_max_files)
        for old in found.remove:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{directory}/{old}")
        for old in found.compress:
            compress(f"{directory}/{old}")


def compress(path: str) -> None:
    """Replace a file by `path`.gz, whole or not at all. Raises OSError."""
    import gzip  # noqa: PLC0415 - most nodes never rotate

    temporary = path + TEMPORARY
    with open(open_regular(path), "rb") as source:
        mode = os.fstat(source.fileno()).st_mode & 0o777
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with open(descriptor, "wb") as sink, gzip.GzipFile("", "wb", 6, sink) as packed:
                shutil.copyfileobj(source, packed, 256 * 1024)
            os.rename(temporary, path + COMPRESSED)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    os.unlink(path)


def _is_logging(view: ContainerView) -> bool:
    return view.state == "running" and bool(view.log_path)


def _absent(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not exist. Blocks on the disk."""
    return [path for path in paths if not os.path.lexists(path)]
