"""The standing results: their record in the checkpoint and the message to pod_workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from actors.probe.policy import Kind, Standing
from proto.pods.pod_workers import ProbeResult
from proto.wire.message import Record

log = logging.getLogger(__name__)

VERSION = 1
Key = tuple[str, str]
"""CRI container ID and kind of probe."""


class Entry(Record, frozen=True, kw_only=True):
    """One standing result with its counters."""

    pod_uid: str
    container: str
    container_id: str
    kind: Kind
    standing: Standing

    @property
    def key(self) -> Key:
        """The key of this entry; it is unique on the node."""
        return self.container_id, self.kind

    def result(self) -> ProbeResult:
        """The message for pod_workers."""
        return ProbeResult(
            pod_uid=self.pod_uid,
            container=self.container,
            container_id=self.container_id,
            probe=self.kind,
            result=self.standing.result,
            message=self.standing.message,
        )


ResultsByKey = dict[Key, Entry]


def by_key(entries: Iterable[Entry]) -> ResultsByKey:
    """Index entries by key."""
    return {entry.key: entry for entry in entries}


def load_results(data: Any) -> ResultsByKey:
    """Decode a checkpoint's data. Data that cannot be decoded is logged and dropped."""
    if data is None:
        return {}
    try:
        return by_key(msgspec.convert(data, list[Entry]))
    except msgspec.ValidationError as error:
        log.warning("cannot use the checkpoint of probe results: %s; probing every container again", error)
        return {}
