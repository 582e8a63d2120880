"""Watches the sockets in plugins_registry and below, and has an owner register the plugin behind each.

A plugin is registered for as long as its socket exists. Nothing is kept on disk: each start registers all plugins
again, as the kubelet does.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from actors._base import Actor, Semaphore
from actors._base.messaging.mailbox import TimerHandle
from actors._files.watch import Watch
from actors._plugins import kinds
from proto.common.backoff import Backoff
from proto.common.until import Until
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

T = TypeVar("T")

RELIST_S = 60.0
"""Period of a full scan, in case that inotify missed a change."""
LIST_S = 2.0
SETTLE_S = 0.01
RETRY = Backoff(0.5, cap_s=122.0)
"""Between tries to register one plugin, as in the kubelet."""
AT_ONCE, AGAIN_AT_ONCE = 8, 6
"""Registrations at once, and how many of them are of plugins that failed before. Each may take a process or a thread
for seconds. Sockets whose plugin hangs so leave room for new plugins."""
MOST_SOCKETS = 1024
MOST_DIRECTORIES = 64
DEEPEST = 3
"""Levels of directories below the first one. The kubelet has no limit."""
MODE = 0o750
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, int]
"""Inode and mtime: a different value is another socket, whose plugin has to be registered.

The inode of a deleted socket may be used again. chmod, chown and link change the ctime of a socket, and not its mtime.
"""


@dataclass
class Walk:
    """Lists sockets, also in directories below, and watches these. Blocks. Follows no link."""

    watch: Watch
    sockets: dict[str, Stamp] = field(default_factory=dict)
    """By path."""
    watches: set[int] = field(default_factory=set)
    left_out: dict[str, None] = field(default_factory=dict)
    """Kinds of entries beyond their bound."""
    directories: int = 0

    def list_sockets(self, descriptor: int, path: str, depth: int = 0) -> None:
        """List a directory that is open. Names with a dot in front are left out, as in the kubelet."""
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if not _is_utf8(entry.name):  # no message and no record can have it
                    self.left_out["names that are not UTF-8"] = None
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    self._enter(descriptor, entry.name, f"{path}/{entry.name}", depth + 1)
                elif stat.S_ISSOCK(status.st_mode) and self._has_room("sockets", len(self.sockets), MOST_SOCKETS):
                    self.sockets[f"{path}/{entry.name}"] = (status.st_ino, status.st_mtime_ns)

    def _enter(self, above: int, name: str, path: str, depth: int) -> None:
        if not self._has_room("levels of directories", depth, DEEPEST + 1):
            return
        if not self._has_room("directories", self.directories, MOST_DIRECTORIES):
            return
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=above)
        except OSError as error:  # it has gone, or a link is in its place
            log.debug("cannot list %s: %s", path, error)
            return
        try:
            self.directories += 1
            self.watches.add(self.watch.add_below(descriptor))
            self.list_sockets(descriptor, path, depth)
        finally:
            os.close(descriptor)

    def _has_room(self, what: str, count: int, most: int) -> bool:
        if count >= most:
            self.left_out[f"too many {what}"] = None
        return count < most


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class NotRegisteredError(Exception):
    """A plugin was refused or does not answer; the message says why. It is tried again."""


class KeptOutError(NotRegisteredError):
    """Another plugin of the same name is registered. The refused one is tried again once a plugin goes."""


class OtherOwnerError(Exception):
    """The plugin behind the socket is another process's. It is not tried again."""


class Owner(Protocol[T]):
    """The manager of some types of plugins. Its methods run in the actor's mailbox thread."""

    async def register(self, path: str) -> T:
        """Register the plugin behind a socket, and tell it the result. Raises NotRegisteredError, OtherOwnerError."""

    def registered(self, plugin: T) -> None:
        """The plugin is registered, and its socket is still there."""

    def gone(self, plugin: T) -> None:
        """Its socket has gone, or another one is in its place."""

    def changed(self) -> None:
        """`plugins` or `is_complete` have changed."""


@dataclass
class Entry(Generic[T]):
    """One socket and the result of its registration."""

    stamp: Stamp
    plugin: T | None = None
    error: str = ""
    failures: int = 0
    is_others: bool = False
    is_kept_out: bool = False
    retry: TimerHandle | None = None
    """The timer of the next try; None while there is a try."""

    @property
    def is_identified(self) -> bool:
        """True once the plugin's type is known, and it is registered if it is the owner's."""
        return self.plugin is not None or self.is_others or kinds.UNKNOWN in self.error


class FirstTries(Generic[T]):
    """The sockets whose plugins were not tried yet. The newest and the oldest one alternate.

    A plugin that has just started waits for no queue of silent ones. Many new sockets at most double the wait of an old
    one. The kubelet tries all at once, in no order (pluginmanager/reconciler), so any order agrees with it. The owner
    decides which of two sockets with the same name wins. A CSI driver keeps its first one until a higher version comes.
    Of DRA drivers and device plugins the last one counts.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Entry[T]] = {}
        self._is_newest_next = True

    def take(self) -> tuple[str, Entry[T]]:
        """Remove the next one. There must be one."""
        choose = max if self._is_newest_next else min
        self._is_newest_next = not self._is_newest_next
        path = choose(self.waiting, key=lambda one: self.waiting[one].stamp[1])
        return path, self.waiting.pop(path)


class Watcher(Generic[T]):
    """Runs in the actor's mailbox thread, except `_list_sockets` and `_readable`."""

    def __init__(self, actor: Actor, owner: Owner[T]) -> None:
        self._actor, self._owner = actor, owner
        self._directory = f"{actor.settings.root_dir}/{kinds.DIRECTORY}"
        self._scanned = False
        self._entries: dict[str, Entry[T]] = {}
        self._watch = Watch(self._directory)
        self._looking = self._again = False
        self._left_out: dict[str, None] = {}
        """Kinds of entries that the last scan left out."""
        self._first_tries: FirstTries[T] = FirstTries()
        self._first_coming = 0
        """Tasks that are to try a plugin for the first time, and wait for a permit."""
        self._permits, self._permits_again = Semaphore(AT_ONCE), Semaphore(AGAIN_AT_ONCE)

    def start(self) -> None:
        """Scan now, at every change, and periodically."""
        self._watch.start(RELIST_S, lambda opened: self._actor.bus.watch_fd(opened, self._readable))
        self._actor.every(Until(RELIST_S), self._scan, "plugin sockets")

    def plugins(self) -> Mapping[str, T]:
        """Registered plugins by socket, the latest registration last."""
        return {path: one.plugin for path, one in self._entries.items() if one.plugin is not None}

    def replace(self, before: T, now: T) -> bool:
        """Replace what is known of a plugin. False: it has gone or registered again meanwhile."""
        for entry in self._entries.values():
            if entry.plugin is before:
                entry.plugin = now
                return True
        return False

    @property
    def is_complete(self) -> bool:
        """True once every plugin with a socket is identified."""
        return self._scanned and all(entry.is_identified for entry in self._entries.values())

    def refused(self) -> dict[str, str]:
        """The errors of plugins that are not registered, by socket."""
        return {path: one.error for path, one in self._entries.items() if one.error}

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
        os.makedirs(self._directory, MODE, exist_ok=True)
        self._watch.ensure()
        walk = Walk(self._watch)
        root = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            walk.list_sockets(root, self._directory)
        finally:
            os.close(root)
        self._watch.retain_below(walk.watches)
        if walk.left_out and walk.left_out != self._left_out:
            why = " and ".join(walk.left_out)
            log.error("cannot watch all of %s: it has %s; remove what is no plugin's", self._directory, why)
        self._left_out = walk.left_out
        return walk.sockets

    def _take(self, found: dict[str, Stamp]) -> None:
        complete, self._scanned, gone = self.is_complete, True, False
        for path, entry in list(self._entries.items()):
            if found.get(path) != entry.stamp:
                del self._entries[path]
                self._first_tries.waiting.pop(path, None)
                if entry.plugin is not None:
                    gone = True
                    log.info("the plugin at %s is no longer registered: its socket has gone", path)
                    self._owner.gone(entry.plugin)
        for path, stamp in found.items():
            if path not in self._entries:
                self._entries[path] = entry = Entry(stamp)
                self._first_tries.waiting[path] = entry
        while self._first_coming < len(self._first_tries.waiting):
            self._first_coming += 1
            self._actor.spawn(self._meet_first(), "meet plugin")
        if gone:
            self._retry_kept_out()
        if gone or self.is_complete != complete:
            self._owner.changed()

    def _retry_kept_out(self) -> None:
        """Try them again now. A plugin under trial that is refused once more has its shortest pause next."""
        for path, entry in self._entries.items():
            if entry.is_kept_out:
                entry.failures = 0
                self._retry(path, entry)

    async def _meet_first(self) -> None:
        """Register one of the plugins that were not tried yet: they come before others."""
        async with self._permits.ahead:
            self._first_coming -= 1
            if self._first_tries.waiting:
                await self._register(*self._first_tries.take())

    async def _meet_again(self, path: str, entry: Entry[T]) -> None:
        """Register a plugin that has failed before, once there is a permit."""
        if self._entries.get(path) is entry:
            async with self._permits_again, self._permits:
                await self._register(path, entry)

    async def _register(self, path: str, entry: Entry[T]) -> None:
        if self._entries.get(path) is not entry:
            return
        try:
            plugin = await self._owner.register(path)
        except OtherOwnerError:
            if self._entries.get(path) is entry:
                self._is_others(entry)
        except NotRegisteredError as error:
            if self._entries.get(path) is entry:
                entry.is_kept_out = isinstance(error, KeptOutError)
                self._refused(path, entry, str(error))
        else:
            if self._entries.get(path) is not entry:
                self._owner.gone(plugin)  # the socket has gone, or belongs to another plugin
                return
            del self._entries[path]  # the latest registration comes last
            self._entries[path] = entry
            entry.plugin, entry.error, entry.failures, entry.is_kept_out = plugin, "", 0, False
            self._owner.changed()
            self._owner.registered(plugin)

    def _is_others(self, entry: Entry[T]) -> None:
        complete, entry.is_others, entry.error = self.is_complete, True, ""
        if self.is_complete != complete:
            self._owner.changed()

    def _refused(self, path: str, entry: Entry[T], error: str) -> None:
        if error != entry.error:
            log.warning("cannot register the plugin at %s: %s; trying again while its socket exists", path, error)
        complete, entry.error = self.is_complete, error
        if self.is_complete != complete:
            self._owner.changed()
        entry.failures += 1
        delay_s = RETRY.delay_s(entry.failures)
        entry.retry = self._actor.after(delay_s, self._retry, path, entry)

    def _retry(self, path: str, entry: Entry[T]) -> None:
        """Begin the next try of a refused plugin, unless it has begun."""
        if entry.retry is not None:
            entry.retry.cancel()
            entry.retry = None
            self._actor.spawn(self._meet_again(path, entry), "meet plugin")
