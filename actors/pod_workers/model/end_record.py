"""EndRecord: the end of a pod or container as the checkpoint keeps it. A restarted actor goes on with it. Pure.

Times are seconds of the kernel's monotonic clock, which all processes of one boot share. After a reboot no container
runs, and the records mean nothing. Kubernetes delivers a preStop hook at least once, and does not start a hook again
that has ended: https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/#hook-delivery-guarantees
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proto.v1 import LifecycleHandler


@dataclass(frozen=True, slots=True)
class HookRecord:
    """A preStop hook that has begun."""

    began: float
    done: bool = False
    """It has ended, with or without an error."""


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The end of one pod."""

    end_by: float
    """The end of its grace period."""
    hooks: Mapping[str, HookRecord] = field(default_factory=dict)
    """By CRI ID of the container."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """The end of one container while its pod is to run: a probe failed, its definition changed, or the like."""

    end_by: float
    """The end of its grace period."""
    hook: HookRecord | None = None


MAX_CAUSE = 400
"""Limit of a cause in bytes. It is in the checkpoint and in a wait record."""


@dataclass(frozen=True, slots=True)
class KillRecord:
    """Why this actor has ended a container that starts again. Events may be dropped, and this is not."""

    id: str
    """CRI ID of the ended container."""
    cause: str
    """One line, such as `Liveness probe failed: broken`."""


def kill_cause(message: str, note: str = "") -> str:
    """The cause of a kill in one line: its message, cut at `MAX_CAUSE` together with the note in brackets."""
    line = " ".join(message.split()).rstrip(": ").encode(errors="replace")
    most = MAX_CAUSE - len(note.encode())
    shown = line if len(line) <= most else line[: most - 3] + b"..."
    text = shown.decode(errors="ignore")
    return f"{text} ({note})" if note else text


def remaining_grace_s(record: EndRecord, now: float) -> int:
    """Whole seconds that are left of the grace period, at least 0."""
    return max(0, math.ceil(record.end_by - now))


def remaining_hook(handler: LifecycleHandler, hook: HookRecord | None, now: float) -> LifecycleHandler | None:
    """The part of a preStop hook that is still to run; None for a hook that has ended.

    A sleep goes on for its rest. A command or request whose outcome is unknown runs again.
    """
    if hook is None:
        return handler
    if hook.done:
        return None
    if handler.sleep is None:
        return handler
    seconds = max(0, math.ceil(hook.began + handler.sleep.seconds - now))
    return msgspec.structs.replace(handler, sleep=msgspec.structs.replace(handler.sleep, seconds=seconds))


def to_plain(records: Mapping[str, EndRecord]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, end_by, [[container ID, began, done], ...]]."""
    return [
        [uid, record.end_by, [[one, hook.began, hook.done] for one, hook in record.hooks.items()]]
        for uid, record in records.items()
    ]


def from_plain(rows: Any) -> dict[str, EndRecord]:
    """The inverse of `to_plain`. Raises msgspec.ValidationError for other rows."""
    return {
        uid: EndRecord(end_by, {one: HookRecord(began, done) for one, began, done in hooks})
        for uid, end_by, hooks in msgspec.convert(rows, list[tuple[str, float, list[tuple[str, float, bool]]]])
    }


def containers_to_plain(ends: Mapping[tuple[str, str], ContainerEnd]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container ID, end_by], and [began, done] of a hook that has begun."""
    return [
        [*key, end.end_by, *([] if end.hook is None else [[end.hook.began, end.hook.done]])]
        for key, end in ends.items()
    ]


def kills_to_plain(kills: Mapping[tuple[str, str], KillRecord]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container name, CRI ID, cause]."""
    return [[*key, one.id, one.cause] for key, one in kills.items()]


def kills_from_plain(rows: Any) -> dict[tuple[str, str], KillRecord]:
    """The inverse of `kills_to_plain`. Raises msgspec.ValidationError for other rows."""
    found = msgspec.convert(rows, list[tuple[str, str, str, str]])
    return {(uid, name): KillRecord(identity, cause) for uid, name, identity, cause in found}


class _ContainerRow(msgspec.Struct, array_like=True):
    uid: str
    container_id: str
    end_by: float
    hook: tuple[float, bool] | None = None


def containers_from_plain(rows: Any) -> dict[tuple[str, str], ContainerEnd]:
    """The inverse of `containers_to_plain`. Raises msgspec.ValidationError for other rows."""
    return {
        (one.uid, one.container_id): ContainerEnd(one.end_by, None if one.hook is None else HookRecord(*one.hook))
        for one in msgspec.convert(rows, list[_ContainerRow])
    }
