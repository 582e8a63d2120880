"""The readiness of each pod during the last hour, as changes of its Ready condition. For the web page; bounded.

The mailbox's thread writes, the loop's thread reads copies.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime
from typing import Any

import msgspec

from proto.common import untrusted
from proto.node.server import ServedPod

KEPT_S = 3600.0
MOST_PODS = 256
MOST_CHANGES = 64
"""Of one pod; the oldest are dropped."""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None  # noqa: N815 - the API's name


class _Status(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _Shown(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class ReadinessHistory:
    """Changes by pod UID: Unix seconds and True for ready. Pods that are gone stay until their changes are old."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, deque[tuple[float, bool]]]] = {}
        self._gone: dict[str, float] = {}

    def take(self, pod: ServedPod, now: float | None = None) -> None:
        """Note a pod's present readiness."""
        now = time.time() if now is None else now
        ready = _ready_of(pod.document)
        if ready is None:
            return
        _, changes = self._pods.setdefault(pod.uid, (f"{pod.namespace}/{pod.name}", deque(maxlen=MOST_CHANGES)))
        self._gone.pop(pod.uid, None)
        if not changes:  # also the change that this process has not seen
            changes.append((_seconds(ready.lastTransitionTime, now), ready.status == "True"))
        elif changes[-1][1] != (ready.status == "True"):
            changes.append((now, ready.status == "True"))
        if len(self._pods) > MOST_PODS:
            self._pods.pop(next(iter(self._pods)))

    def remove(self, uid: str, now: float | None = None) -> None:
        """Note that a pod is gone."""
        if uid in self._pods:
            self._gone[uid] = time.time() if now is None else now
            for old in [one for one, at in self._gone.items() if self._gone[uid] - at > KEPT_S]:
                self._pods.pop(old, None)
                del self._gone[old]

    def shown(self, now: float) -> list[dict[str, Any]]:
        """For the page: names, changes of the last hour, and the end of pods that are gone."""
        found = []
        for uid, (name, changes) in list(self._pods.items()):
            gone = self._gone.get(uid)
            if gone is None or now - gone <= KEPT_S:
                found.append({"name": name, "changes": [[at, ready] for at, ready in list(changes)], "gone": gone})
        return sorted(found, key=lambda one: str(one["name"]))


def _ready_of(document: bytes) -> _Condition | None:
    try:
        conditions = untrusted.decode_json(document, _Shown).status.conditions
    except msgspec.DecodeError:
        return None
    return next((one for one in conditions if one.type == "Ready"), None)


def _seconds(text: str | None, now: float) -> float:
    try:
        return min(now, datetime.fromisoformat(text or "").timestamp())
    except ValueError:
        return now
