"""Crash-loop back-off: when a container that ended may start again.

The arithmetic of client-go's flowcontrol.Backoff as the kubelet uses it (kuberuntime_manager.go, doBackOff): the wait
runs from the end of the last run, doubles at each restart up to the cap, and is forgotten once a run outlasts twice the
cap. Pure; times are Unix seconds, since they are compared with the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BackOff:
    """One container's standing back-off. `updated`: when it was last raised."""

    delay_s: float
    updated: float


@dataclass(frozen=True, slots=True)
class BackOffLimits:
    """Settings crash_loop_initial_back_off_s, crash_loop_max_back_off_s, crash_loop_reset_s."""

    initial_s: float = 10.0
    cap_s: float = 300.0
    reset_s: float = 600.0


def wait_until(back_off: BackOff | None, finished_at: float, limits: BackOffLimits) -> float:
    """Unix time before which the container may not start; 0 when it may at once."""
    if back_off is None or finished_at - back_off.updated > limits.reset_s:
        return 0.0
    return finished_at + back_off.delay_s


def raised(back_off: BackOff | None, finished_at: float, now: float, limits: BackOffLimits) -> BackOff:
    """The back-off that stands after a start at `now` of a container whose last run ended at `finished_at`."""
    if back_off is None or finished_at - back_off.updated > limits.reset_s:
        return BackOff(delay_s=limits.initial_s, updated=now)
    return BackOff(delay_s=min(back_off.delay_s * 2, limits.cap_s), updated=now)


def to_plain(back_offs: dict[tuple[str, str], BackOff]) -> list[list[Any]]:
    """For the checkpoint: [pod UID, container name, delay, updated] each."""
    return [[uid, name, entry.delay_s, entry.updated] for (uid, name), entry in back_offs.items()]


def from_plain(rows: list[list[Any]]) -> dict[tuple[str, str], BackOff]:
    """The inverse of `to_plain`."""
    return {(uid, name): BackOff(float(delay), float(updated)) for uid, name, delay, updated in rows}
