"""Merges the samples of many processes into sums that do not decrease when a process restarts. Pure.

A restarted process counts from 0 again. The last samples of its former incarnations are stored and added. A process
that does not answer counts with its last samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from actors._metrics.registry import Family, Labels, Numbers

BY_POD = frozenset({"pod", "pod_uid"})
"""Labels of series that end with their pod. A dead incarnation's are dropped: nothing would ever remove them."""
Samples = dict[str, dict[Labels, Numbers]]
SourceSamples = Mapping[str, Iterable[tuple[Labels, Numbers]]]
"""The samples of one process, as in `proto.agent.actor.Metrics.samples`."""


class _LastSamples(NamedTuple):
    """The last answer of a source."""

    incarnation: int
    time: float
    samples: Samples


class Merged:
    """State: the last samples of each source, and the counts of dead incarnations."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {family.name: family for family in families}
        self._last: dict[str, _LastSamples] = {}
        self._retired: Samples = {}

    def take(self, source: str, incarnation: int, answer: SourceSamples, now: float) -> bool:
        """Take a source's samples. True when a new incarnation changed the stored counts. Samples of an older
        incarnation are ignored.

        Unknown families and samples of another shape are left out: they come from another version.
        """
        if (before := self._last.get(source)) is not None and incarnation < before.incarnation:
            return False
        reborn = self.replaced(source, incarnation)
        fitting = {
            name: self._fitting(name, dict(samples)) for name, samples in answer.items() if name in self._families
        }
        self._last[source] = _LastSamples(incarnation, now, fitting)
        return reborn

    def replaced(self, source: str, incarnation: int) -> bool:
        """Store the counts of the source's former incarnation when `incarnation` is newer. True when that happened."""
        before = self._last.get(source)
        if before is None or incarnation <= before.incarnation:
            return False
        self._retire(self._last.pop(source).samples)
        return True

    def _fitting(self, name: str, samples: dict[Labels, Numbers]) -> dict[Labels, Numbers]:
        family = self._families[name]
        return {
            labels: numbers
            for labels, numbers in samples.items()
            if len(labels) == len(family.labels) and len(numbers) == family.width
        }

    def _retire(self, samples: Samples) -> None:
        for name, counts in samples.items():
            family = self._families[name]
            if family.kind != "gauge" and not BY_POD.intersection(family.labels):
                _add(self._retired.setdefault(name, {}), counts)

    def age(self, source: str, now: float) -> float | None:
        """Seconds since the source's last answer; None before the first one."""
        last = self._last.get(source)
        return None if last is None else now - last.time

    def samples(self, in_service: Iterable[str]) -> Samples:
        """The sums. Gauges are summed over sources in service only: an absent actor's mailbox, say, is empty."""
        serving = set(in_service)
        total = {name: dict(counts) for name, counts in self._retired.items()}
        for source, last in self._last.items():
            for name, own in last.samples.items():
                if source in serving or self._families[name].kind != "gauge":
                    _add(total.setdefault(name, {}), own)
        return total

    # For the checkpoint

    def saved(self) -> list[Any]:
        """The counts of dead incarnations, as plain values."""
        return [
            [name, [[labels, numbers] for labels, numbers in counts.items()]] for name, counts in self._retired.items()
        ]

    def restore(self, saved: Iterable[Any]) -> None:
        """Restore the result of `saved`."""
        for name, counts in saved:
            if name in self._families:
                answer = {tuple(labels): tuple(numbers) for labels, numbers in counts}
                self._retired[name] = self._fitting(name, answer)


def _add(total: dict[Labels, Numbers], own: Mapping[Labels, Numbers]) -> None:
    for labels, numbers in own.items():
        before = total.get(labels)
        total[labels] = numbers if before is None else tuple(a + b for a, b in zip(before, numbers, strict=True))
