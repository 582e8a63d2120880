"""Where a list and watch stands: what to ask for next, and what an answer means for it. Pure.

Shared by `watch`, which blocks a thread, and `follow`, which does not. Source: client-go's Reflector;
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors._kube.back_off import AWAY_CAP_S, CAP_S, INITIAL_S, ApiBackoff
from actors._kube.errors import ApiError, Gone, Unreachable
from proto.common import untrusted

LIST_S = 60.0
WATCH_MIN_S, WATCH_MAX_S = 300.0, 600.0
"""A watch is asked to end after a time between these, so that no node hangs on one server for ever."""
MARGIN_S = 30.0
"""A server that does not end it then is taken for gone."""
SILENT_S = 180.0
"""A server sends a bookmark a minute even when nothing changes: one that is silent for this long has forgotten the
watch, or hangs."""
SHORT_S = 1.0
"""A watch that ends sooner without an event is a failure."""


class Listener:
    """Whom it is told, in the thread of whoever reads: methods that only hand on."""

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """All there is; what is not in it is gone. `Watch` lets it raise Gone for a list that is too old to be taken:
        then the newest one is asked for."""

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """ADDED, MODIFIED or DELETED."""

    def marked(self, version: str) -> None:
        """A bookmark: there was nothing else up to this version."""

    def failed(self, error: ApiError) -> None:
        """It is tried again. For what an operator sees."""


class Event(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: dict[str, Any]


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _ListMeta
    kind: str = ""
    api_version: str = ""
    items: list[dict[str, Any]] | None = None


class Position:
    """In one collection, `path` with the selectors of `query`."""

    def __init__(
        self, path: str, query: dict[str, str] | None = None, *, exact: bool = False, first_retry_s: float = INITIAL_S
    ) -> None:
        """`exact`: the first list is the newest there is, not any that a server has; for single objects, where that
        costs nothing. `first_retry_s`: the shortest wait after a failure."""
        self.path = path
        self._query = query or {}
        self._initial = "" if exact else "0"
        self._list_from = self._initial
        """Any state that a server has, as after a start; empty, the newest, once a version was too old."""
        self.version: str | None = None
        """Where to go on from; None: list first."""
        self.back_off = ApiBackoff(first_retry_s)

    def list_query(self) -> dict[str, str]:
        """Of the next list."""
        return self._query | ({"resourceVersion": self._list_from} if self._list_from else {})

    def watch_query(self, seconds: float) -> dict[str, str]:
        """Of the next watch, which is to end after so long."""
        return self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version or "",
            "timeoutSeconds": str(int(seconds)),
        }

    def listed(self, content: bytes) -> list[dict[str, Any]]:
        """The items of a list, from which the watch goes on. Raises Unreachable for what is none."""
        try:
            found = untrusted.decode_json(content, _List)
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {self.path}: the list is no JSON of a list: {error}") from error
        self.version = found.metadata.resource_version
        self._list_from = self._initial
        kind = found.kind.removesuffix("List")
        return [{"apiVersion": found.api_version, "kind": kind} | item for item in found.items or ()]

    def event(self, line: bytes) -> Event:
        """A line of the watch. Raises ApiError for one that says an error, or nothing that can be understood."""
        try:
            event = untrusted.decode_json(line, Event)
            if event.type != "ERROR":
                self.version = msgspec.convert(event.object["metadata"], _ListMeta).resource_version
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise Unreachable(f"watch {self.path}: a line that is no event: {error}") from error
        if event.type == "ERROR":
            raise ApiError.of_status(event.object)
        return event

    def lost(self, error: ApiError) -> None:
        """After a failure there is a list first: the server may not be the one it was, nor its etcd."""
        too_new = "Too large resource version" in error.message  # as a server says whose etcd was emptied
        self._list_from = "" if isinstance(error, Gone) or too_new else (self.version or self._list_from)
        self.version = None

    def pause_s(self, error: ApiError, now: float, chance: float) -> float:
        """How long to wait after that failure; `chance` from 0 to 1."""
        cap_s = AWAY_CAP_S if isinstance(error, Unreachable) else CAP_S
        return self.back_off.delay(now, chance, error.retry_after_s, cap_s)
