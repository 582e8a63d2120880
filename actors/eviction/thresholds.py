"""Eviction signals, and thresholds as they are configured. Pure.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ and
pkg/kubelet/eviction/helpers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from proto.v1.quantity import QuantityError, parse, value

Condition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]
Resource = Literal["memory", "ephemeral-storage", "inodes", "pids"]


class Signal(NamedTuple):
    """What a signal means."""

    resource: Resource
    condition: Condition


SIGNALS: dict[str, Signal] = {
    "memory.available": Signal("memory", "MemoryPressure"),
    "nodefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "nodefs.inodesFree": Signal("inodes", "DiskPressure"),
    "imagefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "imagefs.inodesFree": Signal("inodes", "DiskPressure"),
    "pid.available": Signal("pids", "PIDPressure"),
}
"""In the order in which thresholds met at the same time are acted on. The kubelet fixes only that memory is first."""

IGNORED = ("containerfs.available", "containerfs.inodesFree")
"""Accepted for the kubelet's sake: as in it, they follow nodefs or imagefs."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Met while less than this is available."""

    signal: str
    amount: int | None = None
    """Bytes, inodes or processes; None for a share."""
    percent: float | None = None
    """Of the capacity; None for an amount."""

    def quantity(self, capacity: int) -> int:
        """The amount for a machine of this capacity."""
        return self.amount if self.amount is not None else int(capacity * (self.percent or 0.0) / 100)


class BadThreshold(ValueError):
    """A threshold that makes no sense; the message says which and what to write."""


def parse_thresholds(hard: Mapping[str, str]) -> tuple[Threshold, ...]:
    """The thresholds of Settings.eviction_hard, in the order to act on; 0% and 100% switch one off.

    Raises BadThreshold.
    """
    unknown = [signal for signal in hard if signal not in SIGNALS and signal not in IGNORED]
    if unknown:
        known = ", ".join(SIGNALS)
        raise BadThreshold(
            f"cannot use eviction threshold: unsupported eviction signal {unknown[0]}; there are {known}"
        )
    found = (_parse(signal, hard[signal].strip()) for signal in SIGNALS if signal in hard)
    return tuple(threshold for threshold in found if threshold is not None)


def _parse(signal: str, text: str) -> Threshold | None:
    if text.endswith("%"):
        if text in ("0%", "100%"):
            return None
        try:
            percent = float(text[:-1])
        except ValueError:
            raise _bad(signal, text) from None
        if not 0 <= percent <= 100:
            raise BadThreshold(f"cannot use eviction threshold {signal}: {text} is not between 0% and 100%")
        return Threshold(signal, percent=percent)
    try:
        nanos, amount = parse(text), value(text)
    except QuantityError:
        raise _bad(signal, text) from None
    if nanos <= 0:
        raise BadThreshold(f"cannot use eviction threshold {signal}: {text} is not positive")
    return Threshold(signal, amount=amount)


def _bad(signal: str, text: str) -> BadThreshold:
    return BadThreshold(
        f"cannot use eviction threshold {signal}: {text!r} is neither a quantity nor a percentage; write 100Mi or 10%"
    )
