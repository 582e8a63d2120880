"""Eviction signals, and thresholds as they are configured. Pure.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ and
pkg/kubelet/eviction/helpers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from actors._cgroup.quantities.allocatable import share
from proto.v1.scalars.quantity import QuantityError, parse, value

Condition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]
Resource = Literal["memory", "ephemeral-storage", "inodes", "pids"]


class Signal(NamedTuple):
    """What a signal means."""

    resource: Resource
    condition: Condition


SIGNALS: dict[str, Signal] = {
    "memory.available": Signal("memory", "MemoryPressure"),
    "allocatableMemory.available": Signal("memory", "MemoryPressure"),
    "nodefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "nodefs.inodesFree": Signal("inodes", "DiskPressure"),
    "imagefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "imagefs.inodesFree": Signal("inodes", "DiskPressure"),
    "pid.available": Signal("pids", "PIDPressure"),
}
"""In the order in which thresholds met at the same time are acted on. The kubelet fixes only that memory is first."""

IGNORED = ("containerfs.available", "containerfs.inodesFree", "allocatableMemory.available")
"""Accepted for the kubelet's sake: as in it, they follow nodefs or imagefs, and memory.available."""


ALLOCATABLE = "allocatableMemory.available"
NOTHING: Mapping[str, str] = {}
NO_GRACE: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Threshold:
    """Met while less than this is available."""

    signal: str
    amount: int | None = None
    """Bytes, inodes or processes; None for a share."""
    percent: float | None = None
    """Of the capacity; None for an amount."""
    grace_s: float = 0.0
    """A soft threshold has to be met for so long before a pod goes; 0: a hard one."""
    reclaim_amount: int | None = None
    """Once acted on, so much more than the threshold has to be there for it to be over (evictionMinimumReclaim)."""
    reclaim_percent: float | None = None

    def quantity(self, capacity: int) -> int:
        """The amount for a machine of this capacity."""
        return self.amount if self.amount is not None else share(capacity, self.percent or 0.0)

    def reclaim(self, capacity: int) -> int:
        """The minimum reclaim for a machine of this capacity."""
        if self.reclaim_amount is not None:
            return self.reclaim_amount
        return share(capacity, self.reclaim_percent) if self.reclaim_percent is not None else 0


class BadThreshold(ValueError):
    """A threshold that makes no sense; the message says which and what to write."""


def parse_thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] = NOTHING,
    grace_s: Mapping[str, float] = NO_GRACE,
    minimum_reclaim: Mapping[str, str] = NOTHING,
    *,
    pods_are_limited: bool = False,
) -> tuple[Threshold, ...]:
    """The thresholds of the settings, in the order to act on; 0% and 100% switch one off.

    `pods_are_limited`: all pods together have a memory limit, which the hard threshold of memory then is for as well.
    Raises BadThreshold.
    """
    found = []
    for signal in SIGNALS:
        for configured, own_grace_s in ((hard, 0.0), (soft, grace_s.get(signal, 0.0))):
            _check_signals(configured)
            source = "memory.available" if signal == ALLOCATABLE and pods_are_limited and configured is hard else signal
            if source == ALLOCATABLE or source not in configured:
                continue
            threshold = _parse(signal, configured[source].strip())
            if threshold is not None:
                found.append(replace(threshold, grace_s=own_grace_s, **_reclaim(source, minimum_reclaim)))
    return tuple(found)


def _check_signals(configured: Mapping[str, str]) -> None:
    unknown = [signal for signal in configured if signal not in SIGNALS and signal not in IGNORED]
    if unknown:
        known = ", ".join(signal for signal in SIGNALS if signal not in IGNORED)
        raise BadThreshold(
            f"cannot use eviction threshold: unsupported eviction signal {unknown[0]}; there are {known}"
        )


def _reclaim(signal: str, minimum: Mapping[str, str]) -> dict[str, Any]:
    text = minimum.get(signal, "").strip()
    if not text:
        return {}
    try:
        if text.endswith("%"):
            return {"reclaim_percent": float(text[:-1])}
        return {"reclaim_amount": value(text)}
    except ValueError:  # QuantityError too
        raise _bad(signal, text) from None


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
