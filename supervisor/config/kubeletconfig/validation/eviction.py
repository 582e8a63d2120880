"""Rules of eviction: signals, thresholds, grace periods and minimum reclaims.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from proto.agent.settings import DEFAULT_EVICTION_HARD
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.suggestion import suggestion
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
IGNORED = ("containerfs.available", "containerfs.inodesFree", "allocatableMemory.available")
"""Signals that the kubelet derives itself, from the file system or from memory.available."""


def hard(config: KubeletConfiguration) -> dict[str, str]:
    """The hard thresholds of a configuration in which `in_file` has settled them. Those of the file may be removed."""
    return dict(DEFAULT_EVICTION_HARD if config.eviction_hard is None else config.eviction_hard)


def in_file(thresholds: Mapping[str, str] | None, *, merged: bool) -> dict[str, str]:
    """The hard thresholds of the --config file: its own, else the defaults.

    When `merged` (mergeDefaultEvictionSettings), it has both. The kubelet settles them before drop-ins and flags
    (loadConfigFile in cmd/kubelet/app/server.go).
    """
    if thresholds is None:
        return dict(DEFAULT_EVICTION_HARD)
    return {**(DEFAULT_EVICTION_HARD if merged else {}), **thresholds}


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in the eviction fields."""
    for field, thresholds in (("evictionHard", config.eviction_hard), ("evictionSoft", config.eviction_soft)):
        for signal, value in _known(field, thresholds):
            if reason := _bad_amount(value, zero_percent=True):
                yield Problem(_path(field, signal), reason)
    for signal, value in _known("evictionMinimumReclaim", config.eviction_minimum_reclaim):
        if reason := _bad_amount(value, zero_percent=False, zero=True):
            yield Problem(_path("evictionMinimumReclaim", signal), reason)
    for signal, value in _known("evictionSoftGracePeriod", config.eviction_soft_grace_period):
        if reason := _bad_duration(value):
            yield Problem(_path("evictionSoftGracePeriod", signal), reason)
    yield from _unknown(config)
    for signal, value in _known("evictionSoft", config.eviction_soft):
        switched_off = value.strip() in ("0%", "100%")
        if not switched_off and signal not in (config.eviction_soft_grace_period or {}):
            problem = f"needs a grace period; add {signal} to evictionSoftGracePeriod"
            yield Problem(_path("evictionSoft", signal), problem)


def warnings(config: KubeletConfiguration) -> Iterator[Problem]:
    """Warnings of ignored signals."""
    for field, entries in _maps(config):
        for signal in entries:
            if signal in IGNORED:
                yield Problem(_path(field, signal), "has no effect: the agent derives this threshold itself")


def _maps(config: KubeletConfiguration) -> tuple[tuple[str, Mapping[str, str]], ...]:
    return (
        ("evictionHard", config.eviction_hard or {}),
        ("evictionSoft", config.eviction_soft or {}),
        ("evictionSoftGracePeriod", config.eviction_soft_grace_period or {}),
        ("evictionMinimumReclaim", config.eviction_minimum_reclaim or {}),
    )


def _known(field: str, entries: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    defaults = DEFAULT_EVICTION_HARD if field == "evictionHard" else {}
    for signal, value in (entries or {}).items():
        if signal in SIGNALS + IGNORED and defaults.get(signal) != value:  # a default needs no parser
            yield signal, value


def _unknown(config: KubeletConfiguration) -> Iterator[Problem]:
    for field, entries in _maps(config):
        for signal in entries:
            if signal not in SIGNALS + IGNORED:
                hint = suggestion(signal, SIGNALS) or f"; there are {', '.join(SIGNALS)}"
                yield Problem(_path(field, signal), f"unsupported eviction signal {signal[:60]}{hint}")


def _path(field: str, signal: str) -> str:
    from proto.schema.fieldpath import field_text  # noqa: PLC0415 - only errors need it

    return field_text((field, signal))


def _bad_amount(value: str, *, zero_percent: bool, zero: bool = False) -> str:
    text = value.strip()
    if text.endswith("%"):
        return _bad_percentage(text, zero=zero_percent)
    from proto.v1.scalars.quantity import QuantityError, parse  # noqa: PLC0415 - comes with the API types

    try:
        amount = parse(text)
    except QuantityError:
        return f"must be a quantity such as 100Mi or a percentage such as 10%, not {value[:60]!r}"
    if amount < 0 or (amount == 0 and not zero):
        return f"must be {'0 or more' if zero else 'positive'}, not {value[:60]!r}"
    return ""


def _bad_percentage(text: str, *, zero: bool) -> str:
    try:
        percent = float(text[:-1]) if text[:-1].strip() == text[:-1] and "_" not in text else math.nan
    except ValueError:
        percent = math.nan
    if math.isnan(percent):
        return f"must be a percentage such as 10%, not {text[:60]!r}"
    if 0 <= percent <= 100 and (percent > 0 or zero):
        return ""
    bounds = "between 0% and 100%" if zero else "above 0% and at most 100%"
    return f"must be a percentage {bounds}, not {text[:60]!r}"


def _bad_duration(value: str) -> str:
    from proto.v1.scalars.duration import DurationError, parse_duration  # noqa: PLC0415 - comes with the API types

    try:
        return f"must not be negative: {value[:60]}" if parse_duration(value) < 0 else ""
    except DurationError as error:
        return str(error)
