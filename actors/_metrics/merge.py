"""Many processes' samples as one exporter's: sums, across restarts, without what a silent process would delay. Pure.

A counter of a process that was restarted begins at 0 again; what its former incarnations had counted, as far as they
were asked, is kept and added, so that no sum goes down. A silent process stays with what it said last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from actors._metrics.registry import Family, Labels, Numbers

Samples = dict[str, dict[Labels, Numbers]]
SourceSamples = Mapping[str, Iterable[tuple[Labels, Numbers]]]
"""As `proto.agent.actor.Metrics.samples`."""


class _LastSamples(NamedTuple):
    """What a source said last."""

    incarnation: int
    time: float
    samples: Samples


class Merged:
    """State: the last word of each source, and what the dead have counted."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = {family.name: family for family in families}
        self._words: dict[str, _LastSamples] = {}
        self._retired: Samples = {}

    def take(self, source: str, incarnation: int, told: SourceSamples, now: float) -> bool:
        """A source's word; True when it is that of a new incarnation, so that what has been kept changed. One of an
        incarnation that is over by now changes nothing.

        A family that nobody here declares, or a sample of another shape, is left out: it is of another version.
        """
        if (before := self._words.get(source)) is not None and incarnation < before.incarnation:
            return False
        reborn = self.replaced(source, incarnation)
        fitting = {name: self._fitting(name, dict(samples)) for name, samples in told.items() if name in self._families}
        self._words[source] = _LastSamples(incarnation, now, fitting)
        return reborn

    def replaced(self, source: str, incarnation: int) -> bool:
        """True when what is kept changed because the source is that incarnation by now, whether it has said a word yet or
        not: what the former one had counted is kept as the dead's."""
        before = self._words.get(source)
        if before is None or incarnation <= before.incarnation:
            return False
        self._retire(self._words.pop(source).samples)
        return True

    def _fitting(self, name: str, samples: dict[Labels, Numbers]) -> dict[Labels, Numbers]:
        family = self._families[name]
        return {
            labels: numbers
            for labels, numbers in samples.items()
            if len(labels) == len(family.labels) and len(numbers) == family.width
        }

    def _retire(self, samples: Samples) -> None:
        for name, kept in samples.items():
            if self._families[name].kind != "gauge":
                _add(self._retired.setdefault(name, {}), kept)

    def age(self, source: str, now: float) -> float | None:
        """Seconds since its last word; None when it has never said any."""
        word = self._words.get(source)
        return None if word is None else now - word.time

    def samples(self, in_service: Iterable[str]) -> Samples:
        """The sums. Gauges count only of sources in service: nothing is in the mailbox of an actor that is away."""
        serving = set(in_service)
        total = {name: dict(kept) for name, kept in self._retired.items()}
        for source, word in self._words.items():
            for name, own in word.samples.items():
                if source in serving or self._families[name].kind != "gauge":
                    _add(total.setdefault(name, {}), own)
        return total

    # Across a restart of who merges

    def saved(self) -> list[Any]:
        """What the dead have counted, as plain values."""
        return [[name, [[labels, numbers] for labels, numbers in kept.items()]] for name, kept in self._retired.items()]

    def restore(self, saved: Iterable[Any]) -> None:
        """The contrary of `saved`."""
        for name, kept in saved:
            if name in self._families:
                told = {tuple(labels): tuple(numbers) for labels, numbers in kept}
                self._retired[name] = self._fitting(name, told)


def _add(total: dict[Labels, Numbers], own: Mapping[Labels, Numbers]) -> None:
    for labels, numbers in own.items():
        before = total.get(labels)
        total[labels] = numbers if before is None else tuple(a + b for a, b in zip(before, numbers, strict=True))
