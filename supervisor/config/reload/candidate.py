"""Configurations that the agent can run, entries of their history, and differences between two. Values only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from proto.agent.settings import Settings
from proto.common import untrusted
from supervisor.config.reload import readers
from supervisor.supervision import specs


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that has passed every rule."""

    settings: Settings
    """As configured: the runtime endpoint stays empty where the agent had to find one itself."""
    at_start: dict[str, Any] = {}
    """Fields of KubeletConfiguration that take effect while an agent starts, by name."""
    configuration: msgspec.Raw = msgspec.Raw(b"{}")
    """As in RUN_DIR/configuration.json: `configuration`, `secrets`, `sources`, `features` and `flags`."""
    digest: str
    """SHA-256 of the names and contents of its files."""
    missing: tuple[str, ...] = ()
    """A line for each file that it names, that was not there as it was read, and without which no pod starts."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading the files: a candidate, or an error."""

    digest: str
    candidate: Candidate | None = None
    error: str = ""
    notes: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history. `time` is RFC 3339; the other texts are for people."""

    time: str = ""
    verdict: str
    """on trial, good, rolled back, failed, superseded, invalid, refused, needs a restart, no effect, or (at a start)
    last known good."""
    changes: tuple[str, ...] = ()
    """`maxPods: 110 -> 20 (FILE:LINE)`."""
    actors: tuple[str, ...] = ()
    """The restarted actors."""
    message: str = ""


def as_started(found: Resolved, present: Settings) -> Resolved:
    """The same result with the present values of settings that no file can change."""
    if found.candidate is None:
        return found
    kept = {name: getattr(present, name) for name in readers.FROM_FLAGS}
    settings = msgspec.structs.replace(found.candidate.settings, **kept)
    return msgspec.structs.replace(found, candidate=msgspec.structs.replace(found.candidate, settings=settings))


def needs_restart(old: Candidate, new: Candidate) -> tuple[str, ...]:
    """The changed settings, processes and fields that need a new agent, each with the reason."""
    settings = [
        f"{name} ({readers.FIXED[name]})"
        for name in readers.changed(old.settings, new.settings)
        if name in readers.FIXED
    ]
    processes = [
        f"{name} (which processes run is decided at a start)"
        for name in sorted(specs.parts_of(old.settings) ^ specs.parts_of(new.settings))
    ]
    fields = sorted(old.at_start.keys() | new.at_start.keys())
    at_start = [
        f"{name} (takes effect at a start)" for name in fields if old.at_start.get(name) != new.at_start.get(name)
    ]
    return (*settings, *processes, *at_start)


def changes(old: Candidate, new: Candidate) -> tuple[str, ...]:
    """The differences, as `FIELD: OLD -> NEW (FILE:LINE)` with the published names of the fields."""
    before, after = _plain(old), _plain(new)
    was = dict(_leaves(before.get("configuration", {}), ""))
    now = dict(_leaves(after.get("configuration", {}), ""))
    sources = after.get("sources", {})
    found = []
    for field in sorted(was.keys() | now.keys()):
        if was.get(field) != now.get(field):
            place = f" ({sources[field]})" if field in sources else ""
            found.append(f"{field}: {_text(was.get(field))} -> {_text(now.get(field))}{place}")
    return tuple(found)


def _plain(candidate: Candidate) -> dict[str, Any]:
    found: dict[str, Any] = untrusted.decode_json(candidate.configuration)
    return found


def _leaves(value: Any, field: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or (not value and field):
        yield field, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{field}.{key}" if field else key)


def _text(value: Any) -> str:
    return "default" if value is None else msgspec.json.encode(value).decode()
