"""Counters, gauges and histograms of one process: a dictionary each, filled only by what happens.

A forked process begins with an empty one: the forkserver counts nothing. Safe from any thread.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
Numbers = tuple[float, ...]
"""A counter's or gauge's value; a histogram's count in each bucket, the one above the last bound too, then the sum."""

F = TypeVar("F", bound="Family")

_LOCK = threading.Lock()
"""One for all: held for the time of an addition."""

DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; what Prometheus' clients take where nothing else is said."""


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by a factor, rounded as people would write them."""
    return tuple(float(f"{start * factor**number:.12g}") for number in range(count))


class Family:
    """One metric: its name, what it means, its labels; and its samples in this process."""

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
        """How many numbers a sample has."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    def take(self) -> dict[Labels, Numbers]:
        """The samples as they are now."""
        with _LOCK:
            return {labels: tuple(numbers) for labels, numbers in self.samples.items()}

    def drop(self, *labels: str) -> None:
        """Forget a sample: what it is about is no more."""
        with _LOCK:
            self.samples.pop(labels, None)

    def replace(self, values: Iterable[tuple[Labels, float]]) -> None:
        """All samples of a counter or gauge at once, for what is counted elsewhere; what is not among them goes."""
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
    """What only grows, until its process ends."""

    __slots__ = ()

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add to the sample of these label values, in the order the labels were declared in."""
        with _LOCK:
            self._sample(labels)[0] += by


class Gauge(Family):
    """What goes up and down."""

    __slots__ = ()

    def set(self, value: float, *labels: str) -> None:
        """The present value. One that is a bool would be no number to whoever asks for it."""
        with _LOCK:
            self._sample(labels)[0] = float(value)

    def add(self, value: float, *labels: str) -> None:
        """Change by this much."""
        with _LOCK:
            self._sample(labels)[0] += value


class Histogram(Family):
    """How often something was how large."""

    __slots__ = ()

    def observe(self, value: float, *labels: str) -> None:
        """Count one. A bound belongs to the bucket below it."""
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

    def counter(self, name: str, help_text: str, *labels: str) -> Counter:
        """Declare a counter."""
        return self._declared(Counter("counter", name, help_text, labels))

    def gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        """Declare a gauge."""
        return self._declared(Gauge("gauge", name, help_text, labels))

    def histogram(
        self, name: str, help_text: str, *labels: str, bounds: tuple[float, ...] = DEFAULT_BOUNDS
    ) -> Histogram:
        """Declare a histogram with buckets up to and with each of `bounds`."""
        return self._declared(Histogram("histogram", name, help_text, labels, bounds))

    def _declared(self, family: F) -> F:
        if family.name in self.families:
            raise ValueError(f"{family.name} is declared twice")
        self.families[family.name] = family
        return family

    def take(self) -> dict[str, dict[Labels, Numbers]]:
        """The samples of each family as they are now."""
        return {family.name: family.take() for family in self}

    def clear(self) -> None:
        """Forget every sample."""
        for family in self:
            family.samples = {}


_REGISTRIES: list[Registry] = []


def clear_all() -> None:
    """Forget every sample of this process: for tests, which play several actors in one."""
    for registry in _REGISTRIES:
        registry.clear()


def take_all() -> dict[str, tuple[tuple[Labels, Numbers], ...]]:
    """Every family of this process that has samples, in whichever registry it is declared."""
    families = (family for registry in _REGISTRIES for family in registry if family.samples)
    return {family.name: tuple(family.take().items()) for family in families}
