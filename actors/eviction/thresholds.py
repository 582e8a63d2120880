"""Defines eviction signals and parses configured thresholds. Pure.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ and
pkg/kubelet/eviction/helpers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from actors._cgroup.quantities.allocatable import share
from proto.v1.scalars.quantity import QuantityError, parse, value

Condition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]
Resource = Literal["memory", "ephemeral-storage", "inodes", "pids"]


class Signal(NamedTuple):
    """The resource that a signal measures, and the node condition that it sets."""

    resource: Resource
    condition: Condition


SIGNALS: dict[str, Signal] = {
    "memory.available": Signal("memory", "MemoryPressure"),
    "allocatableMemory.available": Signal("memory", "MemoryPressure"),
    "nodefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "nodefs.inodesFree": Signal("inodes", "DiskPressure"),
    "imagefs.available": Signal("ephemeral-storage", "DiskPressure"),
    "imagefs.inodesFree": Signal("inodes", "DiskPressure"),
    "containerfs.available": Signal("ephemeral-storage", "DiskPressure"),
    "containerfs.inodesFree": Signal("inodes", "DiskPressure"),
    "pid.available": Signal("pids", "PIDPressure"),
}
"""Signals in the order of action when several are met. The kubelet specifies only that memory is first."""

DERIVED = ("containerfs.available", "containerfs.inodesFree", "allocatableMemory.available")
"""Accepted in the settings and not read: their thresholds are those of nodefs or imagefs, and of memory.available."""

DiskLayout = Literal["one disk", "images apart", "split"]
"""`images apart`: images and writable layers are on imagefs. `split`: images are on imagefs, layers on containerfs.

Images on nodefs with layers on a disk of their own are `one disk`. The kubelet takes this for `split`
(HasDedicatedImageFs of pkg/kubelet/stats/provider.go). Then pressure on nodefs removes no image, though images fill it.
"""

ALLOCATABLE = "allocatableMemory.available"
NOTHING: Mapping[str, str] = {}
NO_GRACE: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold, met while less than this is available."""

    signal: str
    amount: int | None = None
    """Bytes, inodes or processes; None for a percentage."""
    percent: float | None = None
    """Percentage of the capacity; None for an amount."""
    grace_s: float = 0.0
    """Time for which a soft threshold has to be met before an eviction. One with 0 acts as a hard threshold does."""
    reclaim_amount: int | None = None
    """Amount beyond the threshold that has to be available again after an action (evictionMinimumReclaim)."""
    reclaim_percent: float | None = None
    text: str = field(default="", compare=False)
    """The threshold as the settings have it, `10%` or `100Mi`."""

    def quantity(self, capacity: int) -> int:
        """Return the amount for a machine of this capacity."""
        return self.amount if self.amount is not None else share(capacity, self.percent or 0.0)

    def reclaim(self, capacity: int) -> int:
        """Return the minimum reclaim for a machine of this capacity."""
        if self.reclaim_amount is not None:
            return self.reclaim_amount
        return share(capacity, self.reclaim_percent) if self.reclaim_percent is not None else 0


class BadThreshold(ValueError):
    """An invalid threshold. The message names it and gives a valid form."""


def parse_thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] = NOTHING,
    grace_s: Mapping[str, float] = NO_GRACE,
    minimum_reclaim: Mapping[str, str] = NOTHING,
    *,
    pods_are_limited: bool = False,
) -> tuple[Threshold, ...]:
    """Return the thresholds of the settings in the order of action. 0% and 100% disable one. Raises BadThreshold.

    `pods_are_limited`: the cgroup of all pods has a memory limit, so the hard memory threshold applies to it, too.
    """
    found = []
    for signal in (one for one in SIGNALS if not one.startswith("containerfs.")):
        for configured, own_grace_s in ((hard, 0.0), (soft, grace_s.get(signal, 0.0))):
            _check_signals(configured)
            source = "memory.available" if signal == ALLOCATABLE and pods_are_limited and configured is hard else signal
            if source == ALLOCATABLE or source not in configured:
                continue
            threshold = _parse(signal, configured[source].strip())
            if threshold is not None:
                found.append(replace(threshold, grace_s=own_grace_s, **_reclaim(source, minimum_reclaim)))
    return tuple(found)


def supposed_threshold(signal: str, quantity: str) -> tuple[Threshold, ...]:
    """Return the threshold of a plan that supposes less than `quantity` of a signal. Raises BadThreshold."""
    _check_signals({signal: quantity})
    found = _parse(signal, quantity.strip())
    if found is None:
        raise BadThreshold(f"cannot suppose {signal}<{quantity}: it switches a threshold off; write 5%, for example")
    return (found,)


def configured_signal(signal: str, layout: DiskLayout) -> str:
    """Return the signal under which the settings have a threshold."""
    if signal == ALLOCATABLE:
        return "memory.available"
    return signal.replace("containerfs.", "imagefs." if layout == "images apart" else "nodefs.")


def with_containerfs(thresholds: tuple[Threshold, ...], layout: DiskLayout) -> tuple[Threshold, ...]:
    """Return the thresholds with those of containerfs: imagefs' when the layers are on it, else nodefs'."""
    sources = {configured_signal(one, layout): one for one in SIGNALS if one.startswith("containerfs.")}
    derived = (replace(one, signal=sources[one.signal]) for one in thresholds if one.signal in sources)
    return (*thresholds, *derived)


def _check_signals(configured: Mapping[str, str]) -> None:
    unknown = [signal for signal in configured if signal not in SIGNALS]
    if unknown:
        known = ", ".join(signal for signal in SIGNALS if signal not in DERIVED)
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
    except ValueError:  # QuantityError is one
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
        return Threshold(signal, percent=percent, text=text)
    try:
        nanos, amount = parse(text), value(text)
    except QuantityError:
        raise _bad(signal, text) from None
    if nanos <= 0:
        raise BadThreshold(f"cannot use eviction threshold {signal}: {text} is not positive")
    return Threshold(signal, amount=amount, text=text)


def _bad(signal: str, text: str) -> BadThreshold:
    return BadThreshold(
        f"cannot use eviction threshold {signal}: {text!r} is neither a quantity nor a percentage; write 100Mi or 10%"
    )
