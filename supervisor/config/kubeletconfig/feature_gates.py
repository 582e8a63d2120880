"""Feature gates: the known gates, their state in a configuration, errors and warnings.

The gates AllAlpha and AllBeta are supported. Source: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from supervisor.config.kubeletconfig.gates_table import TABLE
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.suggestion import suggestion

FIELD = "featureGates"

# component-base's logging adds these gates to each component, so the kubelet's table lacks them.
_LOGGING = {
    "ContextualLogging": ("BETA", True),
    "LoggingAlphaOptions": ("ALPHA", False),
    "LoggingBetaOptions": ("BETA", True),
}
_ALL = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


class Gate(NamedTuple):
    """One feature gate."""

    name: str
    stage: str
    """ALPHA, BETA or DEPRECATED; empty: general availability."""
    default: bool
    locked: bool
    """Only the default is allowed."""


@lru_cache(maxsize=1)
def known() -> dict[str, Gate]:
    """Every gate by name."""
    gates = {
        name: Gate(name, stage, default, locked)
        for (stage, default, locked), names in TABLE.items()
        for name in names.split()
    }
    for name, (stage, default) in _LOGGING.items():
        gates.setdefault(name, Gate(name, stage, default, False))
    return gates


class Gates:
    """The gates of a configuration. Entries that `check` refuses are ignored."""

    def __init__(self, entries: Mapping[str, bool]) -> None:
        self._entries = {name: value for name, value in entries.items() if not _is_refused(name, value)}

    def enabled(self, name: str) -> bool:
        """True when a gate is on. Raises KeyError for an unknown gate."""
        gate = known()[name]
        if name in self._entries:
            return self._entries[name]
        for group, stage in _ALL.items():
            if gate.stage == stage and name not in _ALL and group in self._entries:
                return self._entries[group]
        return gate.default


def check(entries: Mapping[str, bool]) -> Iterator[Problem]:
    """Errors of the entries: unknown and locked gates."""
    for name, value in entries.items():
        if _is_refused(name, value):
            yield Problem(f"{FIELD}.{name}", _refusal(name, value))


def warnings(entries: Mapping[str, bool]) -> list[Problem]:
    """The kubelet's warnings for gates that a later release will remove."""
    words = {"": "GA", "DEPRECATED": "deprecated"}
    return [
        Problem(
            f"{FIELD}.{name}",
            f"Setting {words[gate.stage]} feature gate {name}={str(value).lower()}. "
            "It will be removed in a future release.",
        )
        for name, value in entries.items()
        if (gate := known().get(name)) and gate.stage in words and not _is_refused(name, value)
    ]


def _is_refused(name: str, value: bool) -> bool:
    gate = known().get(name)
    return gate is None or (gate.locked and value != gate.default)


def _refusal(name: str, value: bool) -> str:
    gate = known().get(name)
    if gate is None:
        return f"unrecognized feature gate: {name[:60]}{suggestion(name, known())}"
    default = str(gate.default).lower()
    return f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {default}; remove it"
