"""The order of an upgrade's restarts: one actor after the other, each on trial. Values and time in, decisions out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 15.0
"""From ready to the answer to a heartbeat."""
TRIAL_S = 1.0
"""An actor is in service for this long before the next one restarts."""


class Health(NamedTuple):
    """The state of an actor. `deaths` counts unrequested ends; `ponged` is the last answer's monotonic time."""

    incarnation: int
    deaths: int
    ready: bool
    ponged: float | None
    last_death: str = ""


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart this actor."""

    name: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Send this actor a heartbeat."""

    name: str


@dataclass(frozen=True, slots=True)
class GoBack:
    """Return to the former release: an actor failed its trial."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Every actor runs the release. `problems` by actor, on the way back only."""

    problems: tuple[str, ...]


Instruction = Restart | Ping | GoBack | Finished


@dataclass(slots=True)
class Trial:
    """The actor that was restarted last. Times are monotonic."""

    name: str
    above: int
    """Its incarnation before."""
    deaths: int
    began: float
    ready: float | None = None


class Rolling:
    """The restarts. `back`: on the way back a failed actor does not stop the others."""

    def __init__(self, actors: Iterable[str], *, back: bool) -> None:
        self.waiting = list(actors)
        self.moved: list[str] = []
        """Actors that were restarted, also the one on trial."""
        self.trial: Trial | None = None
        self.finished = False
        self._back = back
        self._problems: list[str] = []

    def tick(self, now: float, healths: Mapping[str, Health]) -> Instruction | None:
        """The next instruction; None while an actor is on trial. An actor without a health is left out."""
        if self.finished:
            return None
        if self.trial is not None:
            found = self._judge(self.trial, now, healths.get(self.trial.name))
            if found is not None or self.trial is not None:
                return found
        while self.waiting:
            name = self.waiting.pop(0)
            if name in healths:
                health = healths[name]
                self.trial = Trial(name, health.incarnation, health.deaths, now)
                self.moved.append(name)
                return Restart(name)
        self.finished = True
        return Finished(tuple(self._problems))

    def _judge(self, trial: Trial, now: float, health: Health | None) -> Instruction | None:
        if health is None:  # an operator has stopped it: that is no failure of the release
            self.trial = None
            return None
        if health.deaths > trial.deaths:
            return self._failed(trial, health.last_death or "it ended")
        if health.incarnation == trial.above or not health.ready:
            if now >= trial.began + READY_WITHIN_S:
                return self._failed(trial, f"not ready within {READY_WITHIN_S:g} s")
            return None
        if trial.ready is None:
            trial.ready = now
            return Ping(trial.name)
        return self._in_service(trial, trial.ready, now, health)

    def _in_service(self, trial: Trial, since: float, now: float, health: Health) -> Instruction | None:
        if health.ponged is None or health.ponged < since:
            if now >= since + ANSWER_WITHIN_S:
                return self._failed(trial, f"no answer to a heartbeat within {ANSWER_WITHIN_S:g} s")
            return None
        if now >= since + TRIAL_S:
            self.trial = None
        return None

    def _failed(self, trial: Trial, problem: str) -> Instruction | None:
        self.trial = None
        if not self._back:
            self.finished = True
            return GoBack(trial.name, problem)
        self._problems.append(f"{trial.name}: {problem}")
        return None
