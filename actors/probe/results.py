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
    agent: str = ""
    """ID of the start of the agent that probed; empty when unknown."""

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


def load_results(data: Any, agent: str) -> ResultsByKey:
    """Decode a checkpoint's data. Data that cannot be decoded is logged and dropped.

    Results of another start of the agent are left out: a kubelet may have served the node meanwhile. As in the kubelet,
    counts begin anew, and pod_workers says what each container inherits from its last status.
    """
    if data is None:
        return {}
    try:
        entries = msgspec.convert(data, list[Entry])
        return by_key(one for one in entries if not agent or one.agent in ("", agent))
    except msgspec.ValidationError as error:
        log.warning("cannot use the checkpoint of probe results: %s; probing every container again", error)
        return {}
