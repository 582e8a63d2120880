"""The position of a list and watch: the next request, and the effect of each answer. Pure.

`follow` makes the requests. Source: client-go's Reflector;
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
"""Bounds of a watch's random timeout, so that a node does not stay with one server."""
MARGIN_S = 30.0
"""Time after the timeout until a watch that the server has not ended counts as broken."""
SILENT_S = 180.0
"""Silence after which a watch is made anew, from a new list.

A server sends a bookmark each minute, but none while its cache has seen no event, as of RuntimeClasses in a cluster
without any. A list tells this from a broken watch.
"""
SHORT_S = 1.0
"""A watch that ends sooner, without an event, counts as failed."""


class Listener:
    """Receives lists and changes, in the actor's mailbox thread."""

    def replaced(self, items: list[dict[str, Any]]) -> None:
        """All objects; others are gone. Gone, raised for a list that is too old, requests the newest one."""

    def changed(self, kind: str, item: dict[str, Any]) -> None:
        """ADDED, MODIFIED or DELETED."""

    def marked(self, version: str) -> None:
        """A bookmark: there are no further changes up to this version."""

    def failed(self, error: ApiError) -> None:
        """A list or watch failed and will be retried. For the operator's view."""


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
    """The position in one collection, `path` with the selectors of `query`."""

    def __init__(
        self, path: str, query: dict[str, str] | None = None, *, exact: bool = False, first_retry_s: float = INITIAL_S
    ) -> None:
        """`exact`: the first list is the newest one, not any state that a server has cached; cheap for single objects.
        `first_retry_s`: the shortest wait after a failure."""
        self.path = path
        self._query = query or {}
        self._initial = "" if exact else "0"
        self._list_from = self._initial
        """resourceVersion of the next list: "0" for any cached state, empty for the newest."""
        self.version: str | None = None
        """The version from which to watch; None: list first."""
        self.back_off = ApiBackoff(first_retry_s)

    def list_query(self) -> dict[str, str]:
        """The query of the next list."""
        return self._query | ({"resourceVersion": self._list_from} if self._list_from else {})

    def watch_query(self, seconds: float) -> dict[str, str]:
        """The query of the next watch, with a timeout of `seconds`."""
        return self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version or "",
            "timeoutSeconds": str(int(seconds)),
        }

    def listed(self, content: bytes) -> list[dict[str, Any]]:
        """The items of a list; the watch continues from it. Raises Unreachable for an invalid list."""
        try:
            found = untrusted.decode_json(content, _List)
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {self.path}: the list is no JSON of a list: {error}") from error
        self.version = found.metadata.resource_version
        self._list_from = self._initial
        kind = found.kind.removesuffix("List")
        return [{"apiVersion": found.api_version, "kind": kind} | item for item in found.items or ()]

    def event(self, line: bytes) -> Event:
        """The event of a line. Raises ApiError for an error event or an invalid line."""
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
        """Note a failure. The next request is a list: the next server, or its etcd, may be another one."""
        too_new = "Too large resource version" in error.message  # the text of a server whose etcd was emptied
        self._list_from = "" if isinstance(error, Gone) or too_new else (self.version or self._list_from)
        self.version = None

    def relist(self) -> None:
        """Have the next request be a list, of a state that is no older than the present one."""
        self._list_from, self.version = self.version or self._list_from, None

    def pause_s(self, error: ApiError, now: float, chance: float) -> float:
        """Seconds to wait after the failure; `chance` in [0, 1)."""
        cap_s = AWAY_CAP_S if isinstance(error, Unreachable) else CAP_S
        return self.back_off.delay(now, chance, error.retry_after_s, cap_s)
