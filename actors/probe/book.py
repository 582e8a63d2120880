"""The standing results as the checkpoint has them and as the pod workers have been told."""

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
        """Unique on the node."""
        return self.container_id, self.kind

    def result(self) -> ProbeResult:
        """As the pod workers take it."""
        return ProbeResult(
            pod_uid=self.pod_uid,
            container=self.container,
            container_id=self.container_id,
            probe=self.kind,
            result=self.standing.result,
            message=self.standing.message,
        )


Book = dict[Key, Entry]


def book(entries: Iterable[Entry]) -> Book:
    """By key."""
    return {entry.key: entry for entry in entries}


def loaded(data: Any) -> Book:
    """The book of a checkpoint's data; empty, and logged, when that is not one."""
    if data is None:
        return {}
    try:
        return book(msgspec.convert(data, list[Entry]))
    except msgspec.ValidationError as error:
        log.warning("cannot use the checkpoint of probe results: %s; every container is probed anew", error)
        return {}
