"""Decides when a child hangs: a process that is stopped, or a Ping without an answer. Pure.

A Ping wakes three threads of an actor. So at most heartbeats the supervisor only looks whether the child is idle, which
its wait records and its I/O thread's state show. A child with anything to do gets its Ping then, and has as much time
as ever. A Ping each END_TO_END_S goes the whole way. A suspected child gets one at once.
"""

from __future__ import annotations

from supervisor.supervision.child import Child
from supervisor.supervision.transitions import State

END_TO_END_S = 300.0
"""Longest time without a Pong of a child that is idle at each heartbeat."""


def why_hung(child: Child, now: float) -> str:
    """The reason to replace a child that does not serve; empty for a child that may still answer.

    A stopped process (SIGSTOP, state T) cannot answer, so it has a short deadline. Another one may only be slow on a
    busy machine, and has the watchdog's.
    """
    spec = child.spec
    if child.state not in (State.STARTING, State.READY):
        return ""
    if child.stopped is not None and spec.stopped_deadline_s and now - child.stopped >= spec.stopped_deadline_s:
        return f"its process was stopped by a signal and not continued within {spec.stopped_deadline_s:g} s"
    if child.state is State.READY and child.pinged is not None and now - child.pinged >= _patience_s(child):
        others = "; another actor waited in vain for it, too" if child.suspected else ""
        return f"mailbox did not answer within {_patience_s(child):g} s{others}"
    return ""


def may_be_idle(child: Child, now: float) -> bool:
    """True when a look at an idle child does for a Ping."""
    return not child.suspected and child.ponged is not None and now - child.ponged < END_TO_END_S


def _patience_s(child: Child) -> float:
    """From a Ping to its Pong."""
    spec = child.spec
    return min(spec.suspected_deadline_s, spec.heartbeat_deadline_s) if child.suspected else spec.heartbeat_deadline_s


def due(child: Child) -> tuple[float | None, ...]:
    """The monotonic times at which the child must be looked at."""
    spec = child.spec
    hang_at = None if child.pinged is None else child.pinged + _patience_s(child)
    watched = child.stopped is not None and spec.stopped_deadline_s and child.state in (State.STARTING, State.READY)
    stop_ends = (child.stopped or 0.0) + spec.stopped_deadline_s if watched else None
    return child.deadline, child.next_ping, hang_at, stop_ends
