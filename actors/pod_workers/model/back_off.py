"""Crash-loop back-off: when a container that ended may start again.

Source: client-go's flowcontrol.Backoff as the kubelet uses it (kuberuntime_manager.go, doBackOff). The wait begins at
the end of the last run and doubles at each restart up to the cap. A long run resets it. Its end is compared with the
restart before it, where BackoffHistory compares two restarts. A container with another image or other resources starts
over (GetBackoffKey). Pure. Times are Unix seconds, since they are compared with the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from actors._host.files.hashing import container_hash, fnv1a_32
from proto.common.backoff import Backoff
from proto.v1 import Container


@dataclass(frozen=True, slots=True)
class RestartDelay:
    """The delay before a container's next start (CrashLoopBackOff). `updated`: the time of the last raise."""

    delay_s: float
    updated: float
    definition: str = ""
    """`definition_of` the container."""


def definition_of(container: Container) -> str:
    """A hash of name, image and resources. A back-off counts only for the same definition."""
    resources = fnv1a_32(msgspec.json.encode(container.resources))
    return f"{container_hash(container.name, container.image or '')}-{resources:x}"


def standing(back_off: RestartDelay | None, definition: str) -> RestartDelay | None:
    """The back-off if it counts for that definition."""
    return back_off if back_off is not None and back_off.definition == definition else None


def wait_until(back_off: RestartDelay | None, finished_at: float, delays: Backoff) -> float:
    """Unix time before which the container may not start; 0 when it may at once."""
    if back_off is None or delays.is_reset(back_off.updated, finished_at):
        return 0.0
    return finished_at + back_off.delay_s


def raised(
    back_off: RestartDelay | None, finished_at: float, now: float, delays: Backoff, definition: str = ""
) -> RestartDelay:
    """The back-off after a start at `now` of a container whose last run ended at `finished_at`."""
    if back_off is None or delays.is_reset(back_off.updated, finished_at):
        return RestartDelay(delay_s=delays.initial_s, updated=now, definition=definition)
    return RestartDelay(delay_s=delays.grown_s(back_off.delay_s), updated=now, definition=definition)


def to_plain(back_offs: dict[tuple[str, str], RestartDelay]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container name, delay, updated, definition]."""
    return [[uid, name, entry.delay_s, entry.updated, entry.definition] for (uid, name), entry in back_offs.items()]


def from_plain(rows: list[list[Any]]) -> dict[tuple[str, str], RestartDelay]:
    """The inverse of `to_plain`."""
    return {(uid, name): RestartDelay(float(delay), float(updated), *of) for uid, name, delay, updated, *of in rows}
