"""The drivers of this node: plugins that put a socket into ROOT_DIR/plugins_registry, for as long as it is there.

Covers finding the sockets, when to meet a plugin again, and which driver is where. The meeting itself is a helper's
(`meeting.py`). Nothing is kept: every start meets all of them anew, as the kubelet does. Of the plugins a node may have
only CSI drivers are welcome; others are told so.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors._base import Actor
from actors._files.watch import Watch
from actors.volume import policy
from actors.volume.csi.policy import NOT_A_DRIVER
from actors.volume.helper.pool import HelperGone, HelperHung, Pool
from actors.volume.ops.setup import make_dirs
from actors.volume.steps.csi import DriverInfo, Register
from proto.common.until import Until
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

RELIST_S = 60.0
"""What inotify missed is found by then."""
LIST_S = 2.0
SETTLE_S = 0.01

Stamp = tuple[int, int]
"""Inode and change time: another one is another socket, whose plugin wants to be met."""


@dataclass
class Entry:
    """One socket."""

    stamp: Stamp
    driver: DriverInfo | None = None
    error: str = ""
    failures: int = 0

    @property
    def is_known(self) -> bool:
        """Whether it has said who it is: a driver, or a plugin that is none."""
        return self.driver is not None or NOT_A_DRIVER in self.error


class Registry:
    """Everything runs in the actor's mailbox thread but `_look` and `_readable`."""

    def __init__(
        self, actor: Actor, pool: Pool, directory: str, registered: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        """`registered` is called with the name of a driver that can be used from now on, `changed` when any come or go."""
        self._actor, self._pool, self._directory = actor, pool, directory
        self._registered, self._changed = registered, changed
        self._scanned = False
        self._entries: dict[str, Entry] = {}
        self._watch = Watch(directory)
        self._looking = self._again = False

    def start(self) -> None:
        """Look now, at every change, and from time to time."""
        self._actor.bus.watch_fd(self._watch.fileno(), self._readable)
        self._actor.every(Until(RELIST_S), self._scan, "plugin sockets")

    def endpoint(self, driver: str) -> str:
        """Path of the socket of the driver's service; empty when it is not registered."""
        info = self.drivers().get(driver)
        return info.endpoint if info is not None else ""

    def drivers(self) -> dict[str, DriverInfo]:
        """By name; of two sockets of one driver the one that registered later."""
        return {one.driver.name: one.driver for one in self._entries.values() if one.driver is not None}

    def update(self, before: DriverInfo, now: DriverInfo) -> None:
        """A driver has said anew what it is to this node; nothing of one that registered again meanwhile."""
        for entry in self._entries.values():
            if entry.driver is before and now != before:
                entry.driver = now
                log.info("CSI driver %s: the node takes %s volumes", now.name, now.max_volumes or "any number of")
                self._changed()

    @property
    def is_complete(self) -> bool:
        """Whether every plugin there is has said who it is."""
        return self._scanned and all(entry.is_known for entry in self._entries.values())

    def describe(self) -> dict[str, Any]:
        """Drivers by name, and why other plugins were turned away, by socket."""
        return {
            "drivers": {
                name: {"node_id": one.node_id, "endpoint": one.endpoint, "topology": one.topology}
                for name, one in self.drivers().items()
            },
            "refused": {path: one.error for path, one in self._entries.items() if one.error},
        }

    # Sockets

    def _readable(self) -> None:
        """In the I/O thread."""
        if self._watch.read():
            self._actor.post(self._request_scan, name="plugin_sockets")

    def _request_scan(self) -> None:
        self._actor.spawn(self._scan(), "plugin sockets")

    async def _scan(self) -> None:
        """Look what sockets there are; a call while one looks makes that one look again."""
        self._again = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._again:
                await self._actor.sleep(SETTLE_S)
                self._again = False
                self._take(await self._actor.blocking(LIST_S, self._look))
        except (OSError, AskTimeout) as error:
            log.warning("cannot list %s: %s; it is tried again", self._directory, error)
        finally:
            self._looking = False

    def _look(self) -> dict[str, Stamp]:
        """In a pool thread."""
        make_dirs(self._directory)
        self._watch.ensure()
        found = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISSOCK(status.st_mode) and not entry.name.startswith("."):
                    found[entry.path] = (status.st_ino, status.st_ctime_ns)
        return found

    def _take(self, found: dict[str, Stamp]) -> None:
        complete, self._scanned, gone = self.is_complete, True, False
        for path, entry in list(self._entries.items()):
            if found.get(path) != entry.stamp:
                del self._entries[path]
                if entry.driver is not None:
                    gone = True
                    log.info("plugin %s is no longer registered: its socket %s has gone", entry.driver.name, path)
        for path, stamp in found.items():
            if path not in self._entries:
                self._entries[path] = entry = Entry(stamp)
                self._actor.spawn(self._register(path, entry), "meet plugin")
        if gone or self.is_complete != complete:
            self._changed()

    async def _register(self, path: str, entry: Entry) -> None:
        if self._entries.get(path) is not entry:
            return
        highest = {one.driver.name: one.driver.version for one in self._entries.values() if one.driver is not None}
        try:
            (outcome,) = await self._pool.run(Register(path, highest), dedicated=True)
            driver, error = outcome.driver, outcome.error
        except (HelperGone, HelperHung) as problem:
            driver, error = None, f"plugin at {path} does not answer: {problem}"
        if self._entries.get(path) is not entry:
            return  # its socket has gone, or is another's
        if driver is None:
            self._refused(path, entry, error)
            return
        del self._entries[path]  # the latest is the last
        self._entries[path] = entry
        entry.driver, entry.error, entry.failures = driver, "", 0
        log.info("CSI driver %s is registered: node ID %s, at %s", driver.name, driver.node_id, driver.endpoint)
        self._changed()
        self._registered(driver.name)

    def _refused(self, path: str, entry: Entry, error: str) -> None:
        if error != entry.error:
            log.warning("cannot register the plugin at %s: %s", path, error)
        complete, entry.error = self.is_complete, error
        if self.is_complete != complete:
            self._changed()
        delay_s = policy.retry_delay_s(entry.failures)
        entry.failures += 1
        self._actor.after(delay_s, lambda: self._actor.spawn(self._register(path, entry), "meet plugin"))
