"""Follows a directory of files for an actor: by inotify, and by a slow periodic re-list.

It decides when to scan and runs one scan at a time. The actor handles each result (`take`). There is no state: each
start scans all files.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from actors._base import Actor
from actors._files.names import QUIET_S, Writing
from actors._files.scan import MOST_SKIPPED, Kind, Listing, Stamp, scan, without
from actors._files.watch import Change, Watch
from proto.common import logs
from proto.common.until import Until
from proto.wire.errors import AskTimeout

log = logging.getLogger(__name__)

SCAN_TIMEOUT_S = 2.0
"""A path that hangs, as on a dead network mount, blocks one pool thread only."""
SETTLE_S = 0.01
"""Delay before a scan that follows another, so that files that are copied together are read together. Also after a
removal, because a tool that replaces a file may remove it first."""

Take = Callable[[Listing], Coroutine[Any, None, None]]
"""Handles a scan. After OSError and AskTimeout the next scan finds the same changes again."""

MOST_TRIES = 6
"""Parses of a file that take too long, each `reading.FILE_S` at most."""


class FileSource:
    """Everything runs in the actor's mailbox thread but `_list` and `_readable`."""

    def __init__(self, actor: Actor, path: str, kind: Kind, take: Take, meanwhile: str) -> None:
        """`take` gets each scan, and the next scan waits for it. `meanwhile` is a text for the log: the effect of an
        unreadable path."""
        self.path = path
        self.problem = ""
        """The reason why the path cannot be read now; empty when it can."""
        self._actor = actor
        self._kind = kind
        self._take = take
        self._meanwhile = meanwhile
        self._watch = Watch(path)
        self._stamps: dict[str, Stamp] = {}
        self._unread: dict[str, tuple[Stamp, int]] = {}
        """By path: the stamp of a file that took too long to parse, and how often it did."""
        self._writing: dict[str, tuple[bool, float]] = {}
        self._written: set[str] = set()
        """Names of files that were created or written since the last scan began."""
        self._removed: set[str] = set()
        """Names of files that were removed since the last scan."""
        self._skipped: set[str] = set()
        """Skipped files that were logged, MOST_SKIPPED at most: an editor makes them again and again."""
        self._reading = threading.Lock()
        """Held from the reading of events until the mailbox has them."""
        self._scanning = False
        self._again = False

    @property
    def watched(self) -> bool:
        """True when inotify reports changes; otherwise only the re-list finds them."""
        return self._watch.active

    def start(self, period_s: float) -> None:
        """Scan now, at every change, and every `period_s` seconds."""
        self._watch.start(period_s, lambda opened: self._actor.bus.watch_fd(opened, self._readable))
        self._actor.every(Until(period_s), self._scan, "relist")

    async def relist(self) -> None:
        """Read every file again; returns when that is done."""
        self._stamps.clear()
        await self._scan()
        while self._scanning:  # another scan runs, and repeats for this request
            await self._actor.sleep(SETTLE_S)

    def read_again(self, path: str) -> None:
        """Read a file again with the next scans: its parser was too slow or was killed, as on a busy machine.

        A file that takes too long each time is given up after MOST_TRIES, until it changes.
        """
        stamp = self._stamps.get(path)
        if stamp is None:
            return
        last, tries = self._unread.get(path, (None, 0))
        tries = tries + 1 if last == stamp else 1
        self._unread[path] = (stamp, tries)
        if tries < MOST_TRIES:
            del self._stamps[path]

    def _readable(self) -> None:
        """Read the events in the I/O thread, or after a listing in its thread; handle them in the mailbox."""
        with self._reading:
            changes = self._watch.read()
            if changes:
                self._actor.post(self._changed, changes)

    def _changed(self, changes: list[Change]) -> None:
        now = time.monotonic()
        for change in changes:
            if change.removed:
                self._removed.add(change.name)
            if change.created or change.written:
                self._written.add(change.name)
                if change.name not in self._writing:
                    self._actor.after(QUIET_S, self._request_scan)
                was_written = change.name in self._writing and not self._writing[change.name][0]
                self._writing[change.name] = (not (change.written or was_written), now)
            else:
                self._writing.pop(change.name, None)
        # A file that is being written is not read yet. Its close is an event too.
        if any(not change.written for change in changes):
            self._request_scan()

    def _request_scan(self) -> None:
        self._actor.spawn(self._scan(), "scan")

    async def _scan(self) -> None:
        """Scan the path and pass on the changes. A call during a scan makes that scan repeat."""
        if self._scanning:
            self._again = True
            return
        self._scanning = True
        try:
            settle_s = SETTLE_S if self._removed else 0.0
            self._again = True
            while self._again:
                self._again = False
                await self._scan_once(settle_s)
                settle_s = SETTLE_S
        finally:
            self._scanning = False

    async def _scan_once(self, settle_s: float) -> None:
        if settle_s:
            await self._actor.sleep(settle_s)
        now = time.monotonic()
        self._written.clear()
        removed, self._removed = self._removed, set()
        writing = {name: Writing(created, now - since) for name, (created, since) in self._writing.items()}
        self._writing = {name: entry for name, entry in self._writing.items() if now - entry[1] < QUIET_S}
        try:
            listing = await self._actor.blocking(SCAN_TIMEOUT_S, self._list, dict(self._stamps), writing)
        except (OSError, AskTimeout) as error:
            self._removed |= removed
            self._say_unreadable(f"{error}; check that it exists and is readable")
            return
        self._say_skipped(listing.skipped)
        listing = without(listing, self._written)
        held = {path: self._stamps[path] for path in listing.held_back if path in self._stamps}
        self._stamps = held | listing.stamps
        self._removed |= {os.path.basename(path) for path in listing.held_back} & removed
        self._unread = {path: one for path, one in self._unread.items() if path in self._stamps}
        again = frozenset(path for path in listing.contents if os.path.basename(path) in removed)
        try:
            await self._take(listing._replace(again=again))
        except (OSError, AskTimeout) as error:
            self._removed |= removed
            self._stamps = {path: stamp for path, stamp in self._stamps.items() if path not in listing.contents}
            self._say_unreadable(f"{error}; they are read again at the next scan")
        else:
            self._say("")

    def _say_skipped(self, paths: tuple[str, ...]) -> None:
        """Log each file once that the kubelet would read."""
        for path in paths:
            if path not in self._skipped and len(self._skipped) < MOST_SKIPPED:
                self._skipped.add(path)
                why = "its name is that of a backup or temporary file; rename it to have it read"
                log.log(logs.NOTICE, "%s is not read: %s", path, why)

    def _say_unreadable(self, problem: str) -> None:
        self._say(f"cannot read {self._kind.error.what}s at {self.path}: {problem}")

    def _list(self, known: Mapping[str, Stamp], writing: Mapping[str, Writing]) -> Listing:
        """Scan in a pool thread."""
        self._watch.ensure()
        listing = scan(self.path, self._kind, known, writing)
        self._readable()  # the mailbox knows of a file that was half written by the time it was read
        return listing

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.error("%s; %s", problem, self._meanwhile)
        self.problem = problem
