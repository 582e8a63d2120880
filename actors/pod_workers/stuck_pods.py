"""Emits the event Stuck for pods that wait longer than a minute, with the root cause; once for each cause."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from actors._base import Actor
from actors._base.messaging import waits
from actors._events.recorder import Recorder
from actors.pod_workers.model.wait_reasons import REJECTED
from proto.common.until import Until
from proto.v1 import Pod
from proto.waits.facts import Facts, collect
from proto.waits.record import Wait
from proto.waits.table import read_all
from proto.waits.walk import why
from proto.wire.errors import AskTimeout

STUCK = "Stuck"
STUCK_S = 60.0
LOOK_S = 15.0
"""Shortest time between two looks. While no pod waits, the next look is when a wait that begins now would count."""
READ_S = 5.0
MOST_PODS = 20
"""Pods that are explained in one look; further ones have their turn in the next."""

_NO_CAUSE = frozenset({"timer", "handler"})


class StuckPod(NamedTuple):
    """A pod that waits for long. `key` tells causes apart."""

    subject: str
    key: str
    sentence: str


def long_waiting(facts: Facts) -> list[str]:
    """Subjects of the pods that wait longer than STUCK_S, the longest first."""
    oldest: dict[str, float] = {}
    for _, wait in facts.waits():
        if wait.waiter.startswith("pod/") and _counts(wait, facts.now):
            oldest[wait.waiter] = min(wait.since, oldest.get(wait.waiter, wait.since))
    return sorted(oldest, key=lambda subject: oldest[subject])


def next_look_s(facts: Facts) -> float:
    """Seconds until a pod may have waited for STUCK_S, between LOOK_S and STUCK_S."""
    since = [wait.since for _, wait in facts.waits() if wait.waiter.startswith("pod/") and _may_count(wait)]
    return max(LOOK_S, min(since, default=facts.now) + STUCK_S - facts.now)


def _counts(wait: Wait, now: float) -> bool:
    """A pod may end within its grace period, however long that is."""
    ends = wait.kind == "hook" and wait.deadline > now
    return now - wait.since >= STUCK_S and _may_count(wait) and not ends


def _may_count(wait: Wait) -> bool:
    """A rejected pod does not wait."""
    return wait.kind not in _NO_CAUSE and wait.target != REJECTED


def explained(facts: Facts, known: Mapping[str, Iterable[str]]) -> list[StuckPod]:
    """The pods that are stuck for a cause that is not `known`, subject to keys."""
    found = []
    for subject in long_waiting(facts):
        causes = why(facts, subject).causes
        if not causes:
            continue
        last = causes[0].links[-1]
        key = re.sub(r"\d+", "", f"{causes[0].code} {last.target} {last.what}")
        if key not in known.get(subject, ()):
            found.append(StuckPod(subject, key, causes[0].sentence))
        if len(found) >= MOST_PODS:
            break
    return found


class StuckPods:
    """Looks in a thread of the actor's pool: each LOOK_S while pods wait for long, else each STUCK_S."""

    def __init__(self, actor: Actor, events: Recorder, pods: Callable[[], Iterable[Pod]], endpoint: str) -> None:
        """`pods`: all pods that are wanted or still end. `endpoint`: the runtime's."""
        self._actor, self._events, self._pods, self._endpoint = actor, events, pods, endpoint
        self._known: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Start looking, unless this process records no waits."""
        if waits.table() is None:
            return
        self._actor.every(Until(LOOK_S), self._look, "stuck pods")

    async def _look(self) -> float | None:
        known = {subject: frozenset(keys) for subject, keys in self._known.items()}
        try:
            waiting, found, next_s = await self._actor.blocking(READ_S, self._explain, known)
        except AskTimeout:
            return None
        pods = {f"pod/{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in self._pods()}
        self._known = {subject: keys for subject, keys in self._known.items() if subject in waiting}
        for one in found:
            if one.subject in pods:
                self._known.setdefault(one.subject, set()).add(one.key)
                self._events.pod(pods[one.subject], "Warning", STUCK, one.sentence)
        return float(next_s)

    def _explain(self, known: Mapping[str, Iterable[str]]) -> tuple[frozenset[str], list[StuckPod], float]:
        """The pods that wait for long, the stuck ones, and the seconds until the next look.

        While none waits for long it reads only the waits.
        """
        run_dir = Path(self._actor.settings.run_dir)
        seen = Facts(now=time.monotonic(), tables=read_all(run_dir))
        if not long_waiting(seen):
            return frozenset(), [], next_look_s(seen)
        facts = collect(run_dir, endpoint=self._endpoint)
        return frozenset(long_waiting(facts)), explained(facts, known), LOOK_S
