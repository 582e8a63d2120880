"""The columns of `kubectl events`, the order of events, and their selection by object. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proto.common.rfc3339 import seconds_of
from proto.pods.pod_columns import human_duration
from proto.v1 import Event

HEADERS = ("NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


class About(NamedTuple):
    """The selected object of events. An empty part matches any."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


def parse_about(text: str) -> About:
    """`pod/NAME`, `pod/NAMESPACE/NAME`, `node/NAME`, `actor/NAME`, or a kind alone. Raises ValueError."""
    kind, _, rest = text.partition("/")
    namespace, slash, name = rest.rpartition("/")
    kind = kind.lower().removesuffix("s")
    if kind == "po":
        kind = "pod"
    if kind not in ("pod", "node", "actor") or (slash and not namespace) or "/" in namespace:
        raise ValueError(f"{text!r} must be pod/NAME, pod/NAMESPACE/NAME, node/NAME or actor/NAME")
    return About(kind, namespace, name)


def is_about(event: Event, about: About) -> bool:
    """True when the event is about that object; static pods match also without `-NODENAME`."""
    one = event.involved_object
    names = {"", one.name, (one.name or "").removesuffix(f"-{event.source.host}")}
    return (
        about.kind in ("", (one.kind or "").lower()) and about.namespace in ("", one.namespace) and about.name in names
    )


def ordered(events: Iterable[Event]) -> list[Event]:
    """The events by last occurrence. Within a second, names and revisions give the exact order."""
    return sorted(events, key=_when)


def _when(event: Event) -> tuple[str, int]:
    if (event.count or 1) > 1:
        return event.last_timestamp or "", int(event.metadata.resource_version or 0) * 1000
    try:
        return event.last_timestamp or "", int(event.metadata.name.rpartition(".")[2], 16)
    except ValueError:
        return event.last_timestamp or "", 0


def cells(event: Event, now: float) -> Sequence[str]:
    """A row of the table."""
    one = event.involved_object
    return (
        event.metadata.namespace,
        last_seen(event, now),
        event.type or "",
        event.reason or "",
        f"{(one.kind or '').lower()}/{one.name}",
        " ".join((event.message or "").split("\n")).strip(),
    )


def last_seen(event: Event, now: float) -> str:
    """The age of the last occurrence: `5s`, or for repeats `5s (x4 over 2m)`."""
    age = human_duration(now - seconds_of(event.last_timestamp or ""))
    if (event.count or 1) <= 1:
        return age
    return f"{age} (x{event.count} over {human_duration(now - seconds_of(event.first_timestamp or ''))})"
