"""Rules of numbers and durations: the range of each field, and pairs with an order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed import schema
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_MS = 1_000_000
_S = 1000 * _MS
_INT32 = 2**31 - 1

_RANGES: dict[str, tuple[int, int | None]] = {
    "nodeLeaseDurationSeconds": (1, None),
    "eventBurst": (0, None),
    "eventRecordQPS": (0, None),
    "healthzPort": (0, 65535),
    "imageGCHighThresholdPercent": (0, 100),
    "imageGCLowThresholdPercent": (0, 100),
    "iptablesDropBit": (0, 31),
    "iptablesMasqueradeBit": (0, 31),
    "kubeAPIBurst": (0, None),
    "kubeAPIQPS": (0, None),
    "nodeStatusMaxImages": (-1, None),
    "maxOpenFiles": (0, None),
    "maxPods": (0, None),
    "oomScoreAdj": (-1000, 1000),
    "podsPerCore": (0, None),
    "port": (1, 65535),
    "readOnlyPort": (0, 65535),
    "registryBurst": (0, None),
    "registryPullQPS": (0, None),
    "maxParallelImagePulls": (1, None),
    "containerLogMaxWorkers": (1, None),
    "containerLogMaxFiles": (2, None),
    "logging.verbosity": (0, _INT32),
    "tracing.samplingRatePerMillion": (0, 1_000_000),
}
"""Least and most, both included."""

_DURATIONS: dict[str, tuple[int, int | None]] = {
    "containerLogMonitorInterval": (3 * _S, None),
    "cpuCFSQuotaPeriod": (1 * _MS, 1 * _S),
}
_MAY_BE_NEGATIVE = frozenset({"volumeStatsAggPeriod"})
"""A negative value disables volume statistics."""


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations of ranges and orders, among them those of fractions and of user namespace sizes."""
    for path, (least, most) in _RANGES.items():
        yield from _in_range(path, schema.get(config, path), least, most)
    yield from _durations(config)
    yield from _image_gc(config)
    factor = config.memory_throttling_factor
    if factor is not None and not 0 < factor <= 1:  # also refuses NaN
        yield Problem("memoryThrottlingFactor", f"must be greater than 0 and at most 1, not {factor}")
    ids = config.user_namespaces.ids_per_pod if config.user_namespaces else None
    if ids is not None and (ids % 65536 or not 0 < ids < 2**32):
        problem = f"must be a multiple of 65536, at least 65536 and less than 4294967296, not {ids}"
        yield Problem("userNamespaces.idsPerPod", problem)


def _in_range(path: str, value: int | None, least: int, most: int | None) -> Iterator[Problem]:
    if value is None or (value >= least and (most is None or value <= most)):
        return
    if most is not None:
        bounds = f"between {least} and {most}, inclusive"
    elif least == 0:
        bounds = "0 or greater"
    else:
        bounds = f"{least} or greater"
    yield Problem(path, f"must be {bounds}, not {value}")


def _durations(config: KubeletConfiguration) -> Iterator[Problem]:
    for path, leaf in schema.leaves().items():
        value: Any = schema.get(config, path) if leaf.field.kind.name in ("duration", "time-or-duration") else None
        if value is None:
            continue
        if path in _DURATIONS:
            least, most = _DURATIONS[path]
            if value < least or (most is not None and value > most):
                bounds = f"at least {text(least)}" if most is None else f"between {text(least)} and {text(most)}"
                yield Problem(path, f"must be {bounds}, not {text(value)}")
        elif value < 0 and path not in _MAY_BE_NEGATIVE:
            yield Problem(path, f"must not be negative: {text(value)}")


def _image_gc(config: KubeletConfiguration) -> Iterator[Problem]:
    low, high = config.image_gc_low_threshold_percent, config.image_gc_high_threshold_percent
    if low is not None and high is not None and low >= high:
        problem = f"must be less than imageGCHighThresholdPercent ({high}), not {low}"
        yield Problem("imageGCLowThresholdPercent", problem)
    least, most = config.image_minimum_gc_age, config.image_maximum_gc_age
    if 0 < most <= least:
        yield Problem("imageMaximumGCAge", f"must be greater than imageMinimumGCAge ({text(least)}), not {text(most)}")


def text(nanoseconds: int) -> str:
    """A duration in Go's format."""
    from proto.v1.scalars.duration import format_duration  # noqa: PLC0415 - only errors need the API types

    return format_duration(nanoseconds)
