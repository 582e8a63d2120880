"""Messages that the eviction actor receives: the question about pressure on the node."""

from __future__ import annotations

from typing import Literal

from proto.wire.message import Message, Record, Request


class Signal(Record, frozen=True, kw_only=True):
    """The last observation of an eviction signal, with its threshold."""

    signal: str
    available: int
    capacity: int
    threshold: int
    met: bool


class Pressure(Message, frozen=True, kw_only=True):
    """The pressure conditions that hold, and the observations behind them."""

    conditions: tuple[str, ...]
    signals: tuple[Signal, ...]


class GetPressure(Request[Pressure], frozen=True, kw_only=True):
    """From node and the command line: the result of the last evaluation. A repeat is harmless."""


class PlannedVictim(Record, frozen=True, kw_only=True):
    """An object that would be removed or evicted now, in plans of eviction, image_gc and container_gc."""

    kind: Literal["image", "container", "sandbox", "pod"]
    name: str
    id: str
    rule: str
    """Why it goes."""
    age_s: float
    """Seconds: of a pod since its start, of a container since its creation, of an image since its last use."""
    bytes: int | None = None
    """Size of an image, or a pod's use of the resource in its unit; None when it is not measured."""


class Plan(Message, frozen=True, kw_only=True):
    """The objects that would go now, in order."""

    victims: tuple[PlannedVictim, ...]
    notes: tuple[str, ...] = ()
    """Lines for people."""


class PlanEviction(Request[Plan], frozen=True, kw_only=True):
    """From the command line: the order in which pods would be evicted. Evicts none.

    Refused InvalidThreshold: the signal or the quantity is none. Unavailable: a peer does not answer.
    """

    signal: str = ""
    """Suppose that this signal is below `quantity`; empty: the signals as they are."""
    quantity: str = ""
