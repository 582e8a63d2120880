"""The registry of CSI drivers: plugins with a socket in ROOT_DIR/plugins_registry, for as long as the socket exists.

It finds the sockets, and has a helper register each plugin (`csi/registration.py`). Nothing is kept on disk: every
start registers all plugins again, as the kubelet does. Plugins other than CSI drivers are refused and told so.
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
"""Period of a full scan, in case that inotify missed a change."""
LIST_S = 2.0
SETTLE_S = 0.01

Stamp = tuple[int, int]
"""Inode and change time: a different value is another socket, whose plugin has to be registered."""


@dataclass
class Entry:
    """One socket and the result of its registration."""

    stamp: Stamp
    driver: DriverInfo | None = None
    error: str = ""
    failures: int = 0

    @property
    def is_known(self) -> bool:
        """True once the plugin is identified: a CSI driver, or a plugin of another type."""
        return self.driver is not None or NOT_A_DRIVER in self.error


class Registry:
    """The registered drivers. Runs in the actor's mailbox thread, except `_list_sockets` and `_readable`."""

    def __init__(
        self, actor: Actor, pool: Pool, directory: str, registered: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        """`registered` gets the name of each new driver; `changed` is called when drivers come or go."""
        self._actor, self._pool, self._directory = actor, pool, directory
        self._registered, self._changed = registered, changed
        self._scanned = False
        self._entries: dict[str, Entry] = {}
        self._watch = Watch(directory)
        self._looking = self._again = False

    def start(self) -> None:
        """Scan now, at every change, and periodically."""
        self._actor.bus.watch_fd(self._watch.fileno(), self._readable)
        self._actor.every(Until(RELIST_S), self._scan, "plugin sockets")

    def endpoint(self, driver: str) -> str:
        """Socket path of the driver's service; empty when the driver is not registered."""
        info = self.drivers().get(driver)
        return info.endpoint if info is not None else ""

    def drivers(self) -> dict[str, DriverInfo]:
        """Drivers by name; of two sockets of one driver, the later registration."""
        return {one.driver.name: one.driver for one in self._entries.values() if one.driver is not None}

    def update(self, before: DriverInfo, now: DriverInfo) -> None:
        """Replace a driver's node information; ignored when the driver has registered again meanwhile."""
        for entry in self._entries.values():
            if entry.driver is before and now != before:
                entry.driver = now
                log.info("CSI driver %s: the node takes %s volumes", now.name, now.max_volumes or "any number of")
                self._changed()

    @property
    def is_complete(self) -> bool:
        """True once every plugin with a socket is identified."""
        return self._scanned and all(entry.is_known for entry in self._entries.values())

    def describe(self) -> dict[str, Any]:
        """Drivers by name, and the errors of refused plugins by socket."""
        return {
            "drivers": {
                name: {"node_id": one.node_id, "endpoint": one.endpoint, "topology": one.topology}
                for name, one in self.drivers().items()
            },
            "refused": {path: one.error for path, one in self._entries.items() if one.error},
        }

    # Sockets

    def _readable(self) -> None:
        # In the I/O thread.
        if self._watch.read():
            self._actor.post(self._request_scan, name="plugin_sockets")

    def _request_scan(self) -> None:
        self._actor.spawn(self._scan(), "plugin sockets")

    async def _scan(self) -> None:
        """List the sockets; a call during another scan makes that one repeat."""
        self._again = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._again:
                await self._actor.sleep(SETTLE_S)
                self._again = False
                self._take(await self._actor.blocking(LIST_S, self._list_sockets))
        except (OSError, AskTimeout) as error:
            log.warning("cannot list %s: %s; trying again", self._directory, error)
        finally:
            self._looking = False

    def _list_sockets(self) -> dict[str, Stamp]:
        # In a pool thread.
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
            return  # the socket has gone, or belongs to another plugin
        if driver is None:
            self._refused(path, entry, error)
            return
        del self._entries[path]  # the latest registration comes last
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
        entry.failures += 1
        delay_s = policy.RETRY.delay_s(entry.failures)
        self._actor.after(delay_s, lambda: self._actor.spawn(self._register(path, entry), "meet plugin"))
