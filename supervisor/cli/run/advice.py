"""Finds the reason why pods of `supervisor run` are not ready, and the remedy, in one line for all pods.

Pure functions of pods, their events and the time. `command` calls them and shows the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from proto.v1 import Event, Pod
from proto.waits.obstacles import RECENT_S, STARTING_S, Look, Tool, events_of, obstacle

_SAME_AS_ADVICE = re.compile(
    r"pod_workers pod \S+: container \S+: (ErrImage|ImagePull|RegistryUnavailable|CrashLoopBackOff|InvalidImageName)"
)


class Advice(NamedTuple):
    """The obstacle of all pods in one sentence, and the remedy."""

    what: str = ""
    do: str = ""

    def line(self) -> str:
        """Both in one line; empty without an obstacle."""
        return f"{self.what}; {self.do}" if self.what else ""


NOTHING = Advice()


def find(pods: Sequence[Pod], events: Sequence[Event], now: float, tool: Tool) -> Advice:
    """Find the obstacle of pods; NOTHING while it is too early to tell. `now` is Unix time."""
    looks = ((pod, Look(events_of(pod, events, now - RECENT_S), now, tool, STARTING_S)) for pod in pods)
    found = [one for one in (obstacle(pod, look) for pod, look in looks) if one is not None]
    if not found:
        return NOTHING
    first = found[0]
    same = [one.pod for one in found if one is first or (first.about and one.about == first.about)]
    others = len(found) - len(same)
    more = f" (and {others} other pod{'s' if others > 1 else ''}: see {tool('events')})" if others else ""
    return Advice(f"{_names(same)} {first.what}", f"{first.do}{more}")


def repeats_advice(warning: str) -> bool:
    """True for a warning in the agent's log that says the same as the advice, for each pod and each retry."""
    return _SAME_AS_ADVICE.match(warning) is not None


def _names(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{len(names)} pods"
