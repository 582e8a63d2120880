"""Decides the restart of a child that ended: a pure function of its spec, its history and the time.

The first restart is immediate, further ones have back-off. Past the intensity limit a child is degraded and restarts at
the longest delay. Restarts never stop. Also interprets wait statuses.
"""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass, field, replace

from proto.common.backoff import BackoffHistory, Random
from supervisor.supervision.specs import ChildSpec, Restart


class Cause(enum.Enum):
    """The causes of an incarnation's end that restarts distinguish."""

    NORMAL = "normal"
    """Exit status 0 without a request."""
    SHUTDOWN = "shutdown"
    """Requested by the supervisor, with any status."""
    CRASH = "crash"
    """Another exit status, or it could not be started."""
    KILLED = "killed"
    """A signal, not from the supervisor."""
    HUNG = "hung"
    """Not ready, or not answering, within its deadline; killed by the watchdog."""
    MEMORY = "memory"
    """Past its memory ceiling; stopped by the supervisor."""


@dataclass(frozen=True, slots=True)
class History:
    """A child's restarts so far. The default is a child that never ended."""

    restarts: tuple[float, ...] = ()
    """Monotonic times of ends followed by a restart, oldest first, within the intensity period."""
    repeats: int = 0
    """Ends in a row without a stable incarnation in between."""
    backoff: BackoffHistory = field(default_factory=BackoffHistory)
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One incarnation's life in monotonic time; `ready` is None if it never became ready."""

    started: float
    ready: float | None
    ended: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The reaction to an end: a start at `start_at` (monotonic), or no restart if None."""

    start_at: float | None
    history: History


def is_restarted(restart: Restart, cause: Cause) -> bool:
    """True if a child of this restart type is restarted after an end of this cause."""
    if cause is Cause.SHUTDOWN or restart is Restart.TEMPORARY:
        return False
    return restart is Restart.PERMANENT or cause is not Cause.NORMAL


def decide(spec: ChildSpec, history: History, run: Run, cause: Cause, random: Random) -> Decision:
    """Decide the restart after the end of `run`."""
    if not is_restarted(spec.restart, cause):
        return Decision(None, history)
    now = run.ended
    in_service_s = now - run.ready if run.ready is not None else 0.0
    history = _forgive(spec, history, in_service_s)
    recent = tuple(at for at in history.restarts if now - at < spec.intensity_period_s)
    recent = (*recent[-spec.max_restarts :], now) if spec.max_restarts else (now,)
    degraded = history.degraded or len(recent) > spec.max_restarts
    delay_s, backoff = 0.0, history.backoff
    if degraded:
        delay_s = spec.backoff_cap_s * (1 + random() * spec.jitter_factor)
    elif history.repeats:
        delay_s, backoff = spec.backoff.next_delay(backoff, now, random)
    start_at = max(now + delay_s, spec.until.next_start(run.started, now, random))
    return Decision(start_at, History(recent, history.repeats + 1, backoff, degraded))


def _forgive(spec: ChildSpec, history: History, in_service_s: float) -> History:
    if in_service_s >= spec.intensity_period_s:
        return History()
    if in_service_s >= spec.reset_after_s and in_service_s > 0:
        return replace(history, repeats=0, backoff=BackoffHistory())
    return history


def cause_of(wait_status: int | None, *, asked: bool, hung: bool, outgrown: bool = False) -> Cause:
    """The cause of an end, from its wait status (None: unknown) and the supervisor's own requests."""
    if hung:
        return Cause.HUNG
    if outgrown:
        return Cause.MEMORY
    if asked:
        return Cause.SHUTDOWN
    if wait_status is None:
        return Cause.KILLED
    if wait_status == 0:
        return Cause.NORMAL
    return Cause.KILLED if wait_status & 0x7F else Cause.CRASH


def describe_status(wait_status: int | None) -> str:
    """A wait status as text: `exit 70`, `killed by SIGKILL`."""
    if wait_status is None:
        return "gone, exit status unknown"
    number = wait_status & 0x7F
    if not number:
        return f"exit {wait_status >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
