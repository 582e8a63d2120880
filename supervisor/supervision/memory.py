"""Decides when a child past its memory ceiling is replaced: in a quiet moment, or when patience ends. Pure.

Its size is its anonymous memory, read at each heartbeat. So it needs the watchdog.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.supervision import policy
from supervisor.supervision.policy import Cause
from supervisor.supervision.transitions import State

if TYPE_CHECKING:
    from supervisor.supervision.child import Child

EVIDENCE_WAIT_S = 5.0
"""The longest wait for the evidence. The child serves meanwhile."""
PAUSE_S = 600.0
"""Between two such replacements of one child. A child that needs so much memory for its work serves meanwhile."""
MOST_SIZES = 60
"""Past these, every second size goes, so that the first ones stay."""


@dataclass(slots=True)
class Growth:
    """The sizes of one incarnation at its heartbeats."""

    sizes: list[tuple[float, int]] = field(default_factory=list)
    """Monotonic time and KiB, oldest first."""
    over_since: float | None = None
    """The first heartbeat of those in a row past the ceiling."""
    busy: str = ""
    """The work under way at the last heartbeat; empty: a quiet moment."""

    def add(self, now: float, kib: int, ceiling_mib: int, busy: str) -> None:
        """Note the size at a heartbeat. 0 KiB is unknown, a ceiling of 0 is none."""
        if not kib:
            return
        if len(self.sizes) >= MOST_SIZES:
            del self.sizes[1::2]
        self.sizes.append((now, kib))
        self.busy = busy
        if not ceiling_mib or kib < ceiling_mib * 1024:
            self.over_since = None
        elif self.over_since is None:
            self.over_since = now

    def lines(self, started: float) -> tuple[str, ...]:
        """The sizes as lines of text, since the start."""
        return tuple(f"{at - started:8.0f} s: {kib / 1024:.1f} MiB" for at, kib in self.sizes)


def why_replace(child: Child, all_children: Iterable[Child], now: float) -> str:
    """The reason to replace a child now; empty for none.

    It stays past its ceiling from one heartbeat to the next, so a short peak costs nothing. A quiet moment has no
    message in the mailbox and no call in flight. Another child that starts or stops has its turn first.
    """
    spec, growth = child.spec, child.growth
    if growth.over_since is None or child.state is not State.READY or child.growing:
        return ""
    over_s = now - growth.over_since
    if over_s < spec.heartbeat_period_s / 2 or not policy.is_restarted(spec.restart, Cause.MEMORY):
        return ""
    if child.outgrown_at is not None and now - child.outgrown_at < PAUSE_S:
        return ""
    if any(_changes(other) for other in all_children if other is not child):
        return ""
    if growth.busy and over_s < spec.memory_patience_s:
        return ""
    when = f"after {over_s:.0f} s of waiting for the end of {growth.busy}" if growth.busy else "in a quiet moment"
    size_mib = growth.sizes[-1][1] // 1024
    return f"its memory has grown to {size_mib} MiB, past its ceiling of {spec.memory_ceiling_mib} MiB; replaced {when}"


def _changes(child: Child) -> bool:
    return bool(child.growing) or (child.alive and child.state is not State.READY)
