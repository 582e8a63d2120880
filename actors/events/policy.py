"""Decides whether an occurrence becomes a new event, counts up an existing or a combined one, or is dropped. Pure.

It follows client-go's EventCorrelator with the defaults of a kubelet (tools/record/events_cache.go, Kubernetes 1.36).
Equal events are counted. Ten different messages of one object and reason are combined. A source may record 25 events
about an object, then one every five minutes. Time is that of the occurrences.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from actors.events.entry import Entry
from proto.v1 import ObjectReference

COMBINED = "(combined from similar events): "
OWN_REASONS = frozenset(
    {
        "ContainerRemoved", "SandboxRemoved", "OOMKilled", "Stuck",
        "PlanChanged", "NodeNameConflict", "CertificateRequestFailed", "StopSignalIgnored",
    }
)  # fmt: skip
"""Reasons that the kubelet has not, of objects about which it records events."""

Key = tuple[str, ...]
V = TypeVar("V")


class Limits(NamedTuple):
    """client-go's defaults."""

    remembered: int = 4096
    """Entries of each of the three caches. The least recently used goes first."""
    similar: int = 10
    """Different messages of one object and reason from which on they are combined."""
    similar_within_s: float = 600.0
    """Longest time between two of them, not between first and last."""
    burst: int = 25
    """Occurrences of one source and object that pass at once."""
    refill_s: float = 300.0
    """Time until one more may pass."""


class _Recent(OrderedDict[Key, V], Generic[V]):
    """A bounded cache of the most recently used entries."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def recall(self, key: Key) -> V | None:
        """Return the value and mark it as used."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def keep(self, key: Key, value: V) -> None:
        """Set a value; drop the least recently used one when the cache is full."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class _Counted(NamedTuple):
    """Name, count, first time, object and annotations of an event, for its repetitions."""

    name: str
    times: int
    first_ns: int
    involved: ObjectReference
    """Object of the first occurrence: a combined event keeps the container of its first one."""
    annotations: dict[str, str]
    """Annotations of the first occurrence: client-go's patch of a repeat leaves them out."""

    @classmethod
    def of(cls, entry: Entry) -> _Counted:
        """Return what repetitions of an event need."""
        return cls(entry.name, entry.count, entry.first_ns, entry.involved, entry.annotations)


class _Similar(NamedTuple):
    """Digests of the different messages of one object and reason."""

    messages: frozenset[str]
    last_ns: int


class _Bucket(NamedTuple):
    """Token bucket of one source and object."""

    tokens: float
    at_ns: int


class Correlator:
    """Correlates occurrences with earlier ones, in bounded memory."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._counted: _Recent[_Counted] = _Recent(self.limits.remembered)
        self._similar: _Recent[_Similar] = _Recent(self.limits.remembered)
        self._buckets: _Recent[_Bucket] = _Recent(self.limits.remembered)

    def observe(self, new: Entry) -> Entry | None:
        """Return the event to create or, by its name, to change; None when the rate is exceeded.

        As in client-go, a dropped occurrence still counts, and shows in the next event that passes.
        """
        entry, key = self._aggregate(new)
        counted = self._counted.recall(key)
        if counted is not None:
            name, count, first_ns, involved, annotations = counted
            entry = replace(
                entry, name=name, count=count + 1, first_ns=first_ns, involved=involved, annotations=annotations
            )
        self._counted.keep(key, _Counted.of(entry))
        return entry if self._passes(entry) else None

    def restore(self, kept: Sequence[Entry]) -> None:
        """Restore counts and combinations from stored events, oldest change first. Buckets start full."""
        for entry in kept:
            key = _aggregate_key(entry) if entry.message.startswith(COMBINED) else _event_key(entry)
            self._counted.keep(key, _Counted.of(entry))
            similar = self._similar.get(_aggregate_key(entry))
            messages = {_digest(entry.message)} | (similar.messages if similar else frozenset())
            if entry.message.startswith(COMBINED):  # its parts may have expired
                messages |= {str(number) for number in range(self.limits.similar)}
            self._similar.keep(_aggregate_key(entry), _Similar(self._fewer(messages), entry.last_ns))

    def _aggregate(self, new: Entry) -> tuple[Entry, Key]:
        """Return the event or its combined form, and the key under which it counts."""
        key = _aggregate_key(new)
        similar = self._similar.recall(key)
        fresh = similar is None or new.last_ns - similar.last_ns > self.limits.similar_within_s * 1e9
        messages = {_digest(new.message)} | (frozenset() if fresh or similar is None else similar.messages)
        self._similar.keep(key, _Similar(self._fewer(messages), new.last_ns))
        if len(messages) < self.limits.similar:
            return new, _event_key(new)
        return replace(new, message=COMBINED + new.message, annotations={}), key

    def _fewer(self, messages: Iterable[str]) -> frozenset[str]:
        """Return one message less than the limit. Any of them will do."""
        return frozenset(sorted(messages)[: self.limits.similar - 1])

    def _passes(self, entry: Entry) -> bool:
        key = _source_key(entry)
        if entry.reason in OWN_REASONS:
            # With a bucket each, our own events hold back none of the kubelet's.
            key = (*key, entry.reason)
        bucket = self._buckets.recall(key) or _Bucket(self.limits.burst, entry.last_ns)
        refilled = max(0, entry.last_ns - bucket.at_ns) / 1e9 / self.limits.refill_s
        tokens = min(self.limits.burst, bucket.tokens + refilled)
        passes = tokens >= 1
        # Not the later of the two times: after a clock that was ahead, the bucket would not fill until that time.
        self._buckets.keep(key, _Bucket(tokens - passes, entry.last_ns))
        return passes

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the caches, for a console."""
        return {"counted": len(self._counted), "similar": len(self._similar), "sources": len(self._buckets)}


def _digest(message: str) -> str:
    """Return a short stand-in for a message, to bound the memory of long ones."""
    return message if len(message) < 40 else hashlib.md5(message.encode(), usedforsecurity=False).hexdigest()


def _source_key(entry: Entry) -> Key:
    one = entry.involved
    return (entry.component, one.kind or "", one.namespace or "", one.name or "", one.uid or "", one.api_version or "")


def _aggregate_key(entry: Entry) -> Key:
    return (*_source_key(entry), entry.type, entry.reason)


def _event_key(entry: Entry) -> Key:
    return (*_aggregate_key(entry), entry.involved.field_path or "", _digest(entry.message))
