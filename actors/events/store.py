"""The events there are: by name, oldest change first, bounded in number, size and age. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec.structs import replace

from actors.events.entry import Entry

TTL_S = 3600.0
"""After its last change, as an API server keeps them (--event-ttl)."""
MOST = 4096
MOST_BYTES = 4 * 1024 * 1024
"""Of messages: a flood of long ones costs no more memory than this."""


class Store:
    """State: `entries` by name, and the revision of the last change."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.revision = 0
        self._bytes = 0

    def put(self, entry: Entry, now_ns: int) -> Entry:
        """Keep it in place of the one of its name. Revisions are microseconds, so that they rise across restarts even
        where the last ones were lost."""
        self.revision = max(self.revision + 1, now_ns // 1000)
        entry = replace(entry, revision=self.revision)
        self.load(entry)
        return entry

    def load(self, entry: Entry) -> None:
        """Keep one that has its revision."""
        self.revision = max(self.revision, entry.revision)
        self._drop(entry.name)
        self.entries[entry.name] = entry
        self._bytes += len(entry.message)
        while len(self.entries) > MOST or self._bytes > MOST_BYTES:
            self._drop(next(iter(self.entries)))

    def expire(self, now_ns: int) -> int:
        """Let go of what is too old; how many that were."""
        before = len(self.entries)
        for name, entry in list(self.entries.items()):
            if entry.revision * 1000 + TTL_S * 1e9 > now_ns:
                break
            self._drop(name)
        return before - len(self.entries)

    def since(self, revision: int) -> Iterator[Entry]:
        """What has changed since, oldest change first."""
        return (entry for entry in self.entries.values() if entry.revision > revision)

    def oldest_since(self, revision: int, component: str) -> Entry | None:
        """Of a component, the one whose last change is the first after a revision. Cheap when few have changed."""
        found = None
        for entry in reversed(self.entries.values()):
            if entry.revision <= revision:
                break
            if entry.component == component:
                found = entry
        return found

    def _drop(self, name: str) -> None:
        gone = self.entries.pop(name, None)
        if gone is not None:
            self._bytes -= len(gone.message)
