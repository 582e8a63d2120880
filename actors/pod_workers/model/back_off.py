"""Crash-loop back-off: when a container that ended may start again.

Source: client-go's flowcontrol.Backoff as the kubelet uses it (kuberuntime_manager.go, doBackOff). The wait begins at
the end of the last run and doubles at each restart up to the cap. A long run resets it. Its end is compared with the
restart before it, where BackoffHistory compares two restarts. A container with another image or other resources starts
over (GetBackoffKey). Pure. Times are Unix seconds, since they are compared with the runtime's. A `Wait` counts its
seconds, too: a clock that is set back lengthens none.

SyncPod decides on the view from before its kills. There a container that it kills still runs, so the wait before the
next start counts from the end of the instance before it.
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
    since: float = 0.0
    """The first end of the loop that this delay belongs to; 0 when it is not known."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """An instance that a step kills and starts again."""

    id: str
    end_before: float
    """When the instance before it ended; 0 if the runtime had none."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait before a container's start."""

    id: str
    """Of the instance that ended."""
    until: float
    """As of `wait_until`."""
    due: float
    """Seconds of the monotonic clock at which it is over in any case."""

    def left_s(self, now: float, monotonic: float) -> float:
        """Seconds that are left; zero or negative when it is over."""
        return min(self.until - now, self.due - monotonic)


def definition_of(container: Container) -> str:
    """A hash of name, image and resources. A back-off counts only for the same definition."""
    resources = fnv1a_32(msgspec.json.encode(container.resources))
    return f"{container_hash(container.name, container.image or '')}-{resources:x}"


def standing(back_off: RestartDelay | None, definition: str) -> RestartDelay | None:
    """The back-off if it counts for that definition."""
    return back_off if back_off is not None and back_off.definition == definition else None


def wait_until(
    back_off: RestartDelay | None, finished_at: float, delays: Backoff, replaced: Replaced | None = None
) -> float:
    """Unix time before which the container may not start; 0 when it may at once.

    `finished_at`: the end of its newest instance. `replaced`: that instance, if this step killed it.
    """
    if back_off is None or delays.is_reset(back_off.updated, finished_at):
        return 0.0
    if replaced is None:
        return finished_at + back_off.delay_s
    return replaced.end_before + back_off.delay_s if replaced.end_before else 0.0


def waiting(former: Wait | None, identity: str, until: float, now: float, monotonic: float, delay_s: float) -> Wait:
    """The wait of the instance `identity`: the former one if it is the same, else one of at most `delay_s` from now."""
    if former is not None and (former.id, former.until) == (identity, until):
        return former
    return Wait(identity, until, monotonic + min(until - now, delay_s))


def raises(back_off: RestartDelay | None, finished_at: float, now: float, replaced: Replaced | None = None) -> bool:
    """Return True when a start at `now` after that end raises the back-off; other arguments as of `wait_until`.

    False after a start that failed or was cut off by a kill of this process: it has raised it already. A raise that is
    ahead of `now` is of before the clock was set back.
    """
    if replaced is not None and not replaced.end_before:
        return False  # doBackOff finds no exited instance
    return back_off is None or back_off.updated < finished_at or now < back_off.updated != finished_at


def raised(
    back_off: RestartDelay | None,
    finished_at: float,
    now: float,
    delays: Backoff,
    definition: str = "",
    replaced: Replaced | None = None,
) -> RestartDelay:
    """The back-off after a start at `now` of a container whose last run ended at `finished_at`.

    `replaced`: that instance, if this step killed it. The end before it, without a back-off, is the loop's first.
    """
    updated = max(now, finished_at)  # the end is ahead of a clock that was set back; `raises` finds it here
    if back_off is None or delays.is_reset(back_off.updated, finished_at):
        first = replaced.end_before if back_off is None and replaced is not None else finished_at
        return RestartDelay(delays.initial_s, updated, definition, since=first)
    return RestartDelay(delays.grown_s(back_off.delay_s), updated, definition, back_off.since)


def to_plain(back_offs: dict[tuple[str, str], RestartDelay]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container name, delay, updated, definition, since]."""
    return [[*key, one.delay_s, one.updated, one.definition, one.since] for key, one in back_offs.items()]


class _DelayRow(msgspec.Struct, array_like=True):
    uid: str
    name: str
    delay_s: float
    updated: float
    definition: str = ""
    since: float = 0.0


def from_plain(rows: Any) -> dict[tuple[str, str], RestartDelay]:
    """The inverse of `to_plain`. Raises msgspec.ValidationError for other rows."""
    found = msgspec.convert(rows, list[_DelayRow])
    return {(one.uid, one.name): RestartDelay(one.delay_s, one.updated, one.definition, one.since) for one in found}


def replaced_to_plain(replaced: dict[str, dict[str, Replaced]]) -> list[list[Any]]:
    """Rows for the checkpoint: [pod UID, container name, ID, end before]."""
    return [[uid, name, one.id, one.end_before] for uid, names in replaced.items() for name, one in names.items()]


def replaced_from_plain(rows: Any) -> dict[str, dict[str, Replaced]]:
    """The inverse of `replaced_to_plain`. Raises msgspec.ValidationError for other rows."""
    found: dict[str, dict[str, Replaced]] = {}
    for uid, name, identity, end_before in msgspec.convert(rows, list[tuple[str, str, str, float]]):
        found.setdefault(uid, {})[name] = Replaced(identity, end_before)
    return found
