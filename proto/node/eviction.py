"""Messages the eviction actor receives."""

from __future__ import annotations

from proto.wire.message import Message, Record, Request


class Signal(Record, frozen=True, kw_only=True):
    """One signal's last observation against its threshold."""

    signal: str
    available: int
    capacity: int
    threshold: int
    met: bool


class Pressure(Message, frozen=True, kw_only=True):
    """Conditions that hold and the observations behind them."""

    conditions: tuple[str, ...]
    signals: tuple[Signal, ...]


class GetPressure(Request[Pressure], frozen=True, kw_only=True):
    """What the last evaluation saw. A repeat is harmless."""
