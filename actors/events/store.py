"""Stores events by name, oldest change first, bounded in number, size and age. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import replace

from actors.events.entry import KUBELET, Entry

TTL_S = 3600.0
"""Time to live after the last change: the API server's default (--event-ttl)."""
MOST = 4096
MOST_BYTES = 4 * 1024 * 1024
"""Bound of all messages and annotations together, against floods of long ones."""


class Store:
    """State: `entries` by name, and `revision`, that of the last change."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.revision = 0
        self._bytes = 0
        self._to_send: OrderedDict[str, Entry] = OrderedDict()
        """The kubelet's events that `next_to_send` may return, oldest change first."""

    def put(self, entry: Entry, now_ns: int) -> Entry:
        """Store an event in place of the one with its name, under a new revision.

        Revisions are microseconds, so that they rise across restarts even after a loss of the last ones.
        """
        self.revision = max(self.revision + 1, now_ns // 1000)
        entry = replace(entry, revision=self.revision)
        self.load(entry)
        return entry

    def load(self, entry: Entry) -> None:
        """Store an event with its present revision."""
        self.revision = max(self.revision, entry.revision)
        self._drop(entry.name)
        self.entries[entry.name] = entry
        self._bytes += entry.size()
        if entry.component == KUBELET:
            self._to_send[entry.name] = entry
        while len(self.entries) > MOST or self._bytes > MOST_BYTES:
            self._drop(next(iter(self.entries)))

    def expire(self, now_ns: int) -> int:
        """Drop events that are too old; return how many."""
        before = len(self.entries)
        for name, entry in list(self.entries.items()):
            if entry.revision * 1000 + TTL_S * 1e9 > now_ns:
                break
            self._drop(name)
        return before - len(self.entries)

    def since(self, revision: int) -> Iterator[Entry]:
        """Return the events changed after a revision, oldest change first."""
        return (entry for entry in self.entries.values() if entry.revision > revision)

    def next_to_send(self, sent: int) -> Entry | None:
        """Return the event with the oldest change after the revision `sent`, which only rises.

        Events about actors stay on the node.
        """
        while self._to_send:
            entry = next(iter(self._to_send.values()))
            if entry.revision > sent:
                return entry
            del self._to_send[entry.name]
        return None

    def _drop(self, name: str) -> None:
        gone = self.entries.pop(name, None)
        self._to_send.pop(name, None)
        if gone is not None:
            self._bytes -= gone.size()
