"""Compares a collection or an eviction with the plan that was shown before it. Pure; times are monotonic seconds.

A plan and the act come from the same functions. They differ only if the facts behind them have changed meanwhile, and
then the act tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

CHANGED = "PlanChanged"
"""Reason of the node's event for an act that differs from its plan."""
KEPT_S = 3600.0
"""Age at which a plan is forgotten: an operator has read it, or not."""
SHOWN = 5
"""Changes in a message. It counts the others."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The objects that go, and the facts that decide it."""

    victims: tuple[str, ...]
    """IDs in order."""
    verdicts: Mapping[str, str]
    """ID to the reason to go or to stay, of each object that was looked at."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Amounts that decide how many go, by name."""
    names: Mapping[str, str] = field(default_factory=dict)
    """ID to a name for people."""

    def first(self) -> Basis:
        """Return the basis of an act that takes one victim at a time."""
        return replace(self, victims=self.victims[:1])


def changes(plan: Basis, act: Basis) -> list[str]:
    """Return why `act` takes other objects than `plan`; empty when both take the same in the same order."""
    if plan.victims == act.victims:
        return []
    return [*_verdicts(plan, act), *_figures(plan.figures, act.figures)] or ["another order of removal"]


def _verdicts(plan: Basis, act: Basis) -> Iterator[str]:
    both = set(plan.victims) & set(act.victims)
    moved = tuple(one for one in plan.victims if one in both) != tuple(one for one in act.victims if one in both)
    names = {**plan.names, **act.names}
    for id_ in dict.fromkeys((*plan.victims, *act.victims)):
        if id_ in both and not moved:
            continue
        before, after = plan.verdicts.get(id_), act.verdicts.get(id_)
        if before != after:
            was = "was not there" if before is None else f"was {before}"
            yield f"{names.get(id_, id_)}: {was}, {'is gone' if after is None else f'is {after}'}"


def _figures(plan: Mapping[str, int], act: Mapping[str, int]) -> Iterator[str]:
    for name in sorted({*plan, *act}):
        if plan.get(name) != act.get(name):
            yield f"{name}: {plan.get(name, 'none')} in the plan, {act.get(name, 'none')} now"


def message(found: list[str], age_s: float) -> str:
    """Return the event's message."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"Differs from the plan of {age_s:.0f} s ago: {'; '.join(found[:SHOWN])}{more}"


class LastPlan:
    """State: the plan that was shown last. An act uses it up; a restart of the actor forgets it."""

    def __init__(self) -> None:
        self._plan: Basis | None = None
        self._made = 0.0

    def keep(self, plan: Basis, now: float) -> None:
        """Remember a plan."""
        self._plan, self._made = plan, now

    def compare(self, act: Basis, now: float) -> str:
        """Return the message of the differences; empty when the act is as planned, or there is no plan."""
        plan, self._plan = self._plan, None
        if plan is None or now - self._made > KEPT_S:
            return ""
        found = changes(plan, act)
        return message(found, now - self._made) if found else ""
