"""Messages that the eviction actor receives: the question about pressure on the node."""

from __future__ import annotations

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
