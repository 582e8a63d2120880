"""Crash-loop back-off: when a container that ended may start again.

Source: client-go's flowcontrol.Backoff as the kubelet uses it (kuberuntime_manager.go, doBackOff). The wait begins at
the end of the last run and doubles at each restart up to the cap. It is forgotten once a run outlasts twice the cap. A
container with another image or other resources starts over (GetBackoffKey). Pure. Times are Unix seconds, since they
are compared with the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from actors._host.files.hashing import container_hash, fnv1a_32
from proto.v1 import Container


@dataclass(frozen=True, slots=True)
class BackOff:
    """One container's back-off. `updated`: the time of the last raise."""

    delay_s: float
    updated: float
    definition: str = ""
    """`definition_of` the container."""


@dataclass(frozen=True, slots=True)
class BackOffLimits:
    """Settings crash_loop_initial_back_off_s, crash_loop_max_back_off_s, crash_loop_reset_s."""

    initial_s: float = 10.0
    cap_s: float = 300.0
    reset_s: float = 600.0


def definition_of(container: Container) -> str:
    """A hash of name, image and resources. A back-off counts only for the same definition."""
    resources = fnv1a_32(msgspec.json.encode(container.resources))
    return f"{container_hash(container.name, container.image or '')}-{resources:x}"


def standing(back_off: BackOff | None, definition: str) -> BackOff | None:
    """The back-off if it counts for that definition."""
    return back_off if back_off is not None and back_off.definition == definition else None


def wait_until(back_off: BackOff | None, finished_at: float, limits: BackOffLimits) -> float:
    """Unix time before which the container may not start; 0 when it may at once."""
    if back_off is None or finished_at - back_off.updated > limits.reset_s:
        return 0.0
    return finished_at + back_off.delay_s


def raised(
    back_off: BackOff | None, finished_at: float, now: float, limits: BackOffLimits, definition: str = ""
) -> BackOff:
    """The back-off after a start at `now` of a container whose last run ended at `finished_at`."""
    if back_off is None or finished_at - back_off.updated > limits.reset_s:
        return BackOff(delay_s=limits.initial_s, updated=now, definition=definition)
    return BackOff(delay_s=min(back_off.delay_s * 2, limits.cap_s), updated=now, definition=definition)


def to_plain(back_offs: dict[tuple[str, str], BackOff]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container name, delay, updated, definition]."""
    return [[uid, name, entry.delay_s, entry.updated, entry.definition] for (uid, name), entry in back_offs.items()]


def from_plain(rows: list[list[Any]]) -> dict[tuple[str, str], BackOff]:
    """The inverse of `to_plain`."""
    return {(uid, name): BackOff(float(delay), float(updated), *of) for uid, name, delay, updated, *of in rows}
