"""Counters, gauges and histograms of one process, with a dictionary of samples each.

A forked process starts without samples, because the forkserver counts nothing. Safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Numbers = tuple[float, ...]
"""A counter's or gauge's value; or a histogram's counts by bucket, up to infinity, and its sum."""

F = TypeVar("F", bound="Family")

_LOCK = threading.Lock()
"""Shared by all families; held during an addition."""

DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; the default of Prometheus' clients."""


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by a factor, rounded to 12 digits."""
    return tuple(float(f"{start * factor**number:.12g}") for number in range(count))


class Family:
    """A metric: name, help, labels, and its samples in this process."""

    __slots__ = ("bounds", "help", "kind", "labels", "name", "samples")

    def __init__(
        self, kind: Kind, name: str, help_text: str, labels: Labels = (), bounds: tuple[float, ...] = ()
    ) -> None:
        self.kind: Kind = kind
        self.name = name
        self.help = help_text
        self.labels = labels
        self.bounds = bounds
        self.samples: dict[Labels, list[float]] = {}

    @property
    def width(self) -> int:
        """The number of values of a sample."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    def take(self) -> dict[Labels, Numbers]:
        """A copy of the samples."""
        with _LOCK:
            return {labels: tuple(numbers) for labels, numbers in self.samples.items()}

    def drop(self, *labels: str) -> None:
        """Remove a sample whose object no longer exists."""
        with _LOCK:
            self.samples.pop(labels, None)

    def replace(self, values: Iterable[tuple[Labels, float]]) -> None:
        """Replace all samples of a counter or gauge that is counted elsewhere."""
        fresh = {labels: [float(value)] for labels, value in values}
        with _LOCK:
            self.samples = fresh

    def _sample(self, labels: Labels) -> list[float]:
        numbers = self.samples.get(labels)
        if numbers is None:
            if len(labels) != len(self.labels):
                raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)}")
            numbers = self.samples[labels] = [0.0] * self.width
        return numbers


class Counter(Family):
    """A value that only grows while its process lives."""

    __slots__ = ()

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add to the sample of these label values, in the declared order."""
        with _LOCK:
            self._sample(labels)[0] += by


class Gauge(Family):
    """A value that may rise and fall."""

    __slots__ = ()

    def set(self, value: float, *labels: str) -> None:
        """Set the value. A bool becomes a number, because the wire format has numbers only."""
        with _LOCK:
            self._sample(labels)[0] = float(value)

    def add(self, value: float, *labels: str) -> None:
        """Add to the value."""
        with _LOCK:
            self._sample(labels)[0] += value


class Histogram(Family):
    """Counts of values by size."""

    __slots__ = ()

    def observe(self, value: float, *labels: str) -> None:
        """Count a value. A value at a bound is in the bucket below it."""
        with _LOCK:
            numbers = self._sample(labels)
            numbers[bisect_left(self.bounds, value)] += 1
            numbers[-1] += value


class Registry:
    """The families of a catalogue, by name."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        _REGISTRIES.append(self)

    def __iter__(self) -> Iterator[Family]:
        return iter(self.families.values())

    def counter(self, name: str, help_text: str, labels: str = "") -> Counter:
        """Declare a counter. `labels` are the names of its labels, separated by spaces."""
        return self._declared(Counter("counter", name, help_text, tuple(labels.split())))

    def gauge(self, name: str, help_text: str, labels: str = "") -> Gauge:
        """Declare a gauge."""
        return self._declared(Gauge("gauge", name, help_text, tuple(labels.split())))

    def histogram(
        self, name: str, help_text: str, labels: str = "", bounds: tuple[float, ...] = DEFAULT_BOUNDS
    ) -> Histogram:
        """Declare a histogram with a bucket for each upper bound, inclusive."""
        return self._declared(Histogram("histogram", name, help_text, tuple(labels.split()), bounds))

    def _declared(self, family: F) -> F:
        if family.name in self.families:
            raise ValueError(f"{family.name} is declared twice")
        self.families[family.name] = family
        return family

    def take(self) -> dict[str, dict[Labels, Numbers]]:
        """A copy of the samples of each family."""
        return {family.name: family.take() for family in self}

    def clear(self) -> None:
        """Remove all samples."""
        for family in self:
            family.samples = {}


_REGISTRIES: list[Registry] = []


def take_all() -> dict[str, tuple[tuple[Labels, Numbers], ...]]:
    """Every family of this process with samples, from all registries."""
    families = (family for registry in _REGISTRIES for family in registry if family.samples)
    return {family.name: tuple(family.take().items()) for family in families}
