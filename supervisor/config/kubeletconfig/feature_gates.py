"""Feature gates: the known gates, their state in a configuration, errors and warnings.

The gates AllAlpha and AllBeta are supported. A gate that is not built cannot be switched on. Source: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from supervisor.config.kubeletconfig.gates.dependencies import NEEDS
from supervisor.config.kubeletconfig.gates.table import TABLE
from supervisor.config.kubeletconfig.gates.verdicts import verdicts
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
_LEAVING = {"": "GA", "DEPRECATED": "deprecated"}
"""Stages of gates that a later release will remove."""
_NAMED = 5
"""Limit of gates that a message about a group names."""


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
        self._entries = {name: value for name, value in entries.items() if not _is_refused(name, entries)}

    def enabled(self, name: str) -> bool:
        """True when a gate is on. Raises KeyError for an unknown gate."""
        gate = known()[name]
        if name in self._entries:
            return self._entries[name]
        for group, stage in _ALL.items():
            if gate.stage == stage and name not in _ALL and group in self._entries:
                return self._entries[group]
        return gate.default


def in_effect(entries: Mapping[str, bool]) -> list[tuple[str, str, bool]]:
    """(name, stage, on) of every gate. A gate that is not built is off, also where its default is on."""
    gates = Gates(entries)
    return [
        (gate.name, gate.stage, gates.enabled(gate.name) and not verdicts()[gate.name].is_missing)
        for gate in known().values()
    ]


def requirement(name: str) -> str:
    """The message for a field whose gate is off."""
    if verdicts()[name].is_missing and not known()[name].default:
        return f"requires feature gate {name}, which is not built here; remove the field"
    return f"requires feature gate {name}; enable it in featureGates, or remove the field"


def check(entries: Mapping[str, bool]) -> Iterator[Problem]:
    """Errors of the entries: gates that are unknown, locked, or not built and switched on.

    Without such, as in the kubelet: gates that are on and need a gate that is off.
    """
    refused = [name for name in entries if _is_refused(name, entries)]
    for name in refused:
        yield Problem(f"{FIELD}.{name}", _refusal(name, entries))
    if not refused:
        yield from _unmet(entries)


def _unmet(entries: Mapping[str, bool]) -> Iterator[Problem]:
    gates = Gates(entries)
    for name, needed in NEEDS.items():
        off = [one for one in needed if not gates.enabled(one)]
        if off and gates.enabled(name):
            # The entry that is to blame is the gate's own, that of a needed gate, or of a group.
            blamed = next(one for one in (name, *off, *_ALL) if one in entries)
            message = f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
            yield Problem(f"{FIELD}.{blamed}", f"{message}; enable these too, or disable {name}")


def warnings(entries: Mapping[str, bool]) -> list[Problem]:
    """Warnings of entries without effect, and the kubelet's of gates that a later release will remove."""
    found = []
    for name, value in entries.items():
        if _is_refused(name, entries):
            continue
        if message := _warning(name, value, entries):
            found.append(Problem(f"{FIELD}.{name}", message))
        elif (stage := known()[name].stage) in _LEAVING:
            message = f"Setting {_LEAVING[stage]} feature gate {name}={str(value).lower()}. "
            message += "It will be removed in a future release."
            found.append(Problem(f"{FIELD}.{name}", message, is_remark=True))
    return found


def _warning(name: str, value: bool, entries: Mapping[str, bool]) -> str:
    verdict = verdicts()[name]
    if value and verdict.is_missing:
        return f"has no effect: {verdict.why}; remove it"
    if not value and verdict.kind == "built and on":
        return f"has no effect: {name} cannot be switched off here; remove it"
    if not value and name in _ALL:
        stay = [one for one in _of_group(name, entries) if verdicts()[one].kind == "built and on"]
        return f"does not switch off {_some(stay)}; these are always on here" if stay else ""
    return ""


def _is_refused(name: str, entries: Mapping[str, bool]) -> bool:
    gate, value = known().get(name), entries[name]
    if gate is None or (gate.locked and value != gate.default):
        return True
    if not value or gate.default:
        return False
    return verdicts()[name].is_refused or bool(_missing(name, entries))


def _refusal(name: str, entries: Mapping[str, bool]) -> str:
    """The reason to refuse an entry. It takes longer than `_is_refused`, because it looks for similar names."""
    gate, value = known().get(name), str(entries[name]).lower()
    if gate is None:
        return f"unrecognized feature gate: {name[:60]}{suggestion(name, known())}"
    if gate.locked:
        default = str(gate.default).lower()
        return f"cannot set feature gate {name} to {value}, feature is locked to {default}; remove it"
    if name in _ALL:
        return (
            f"cannot set feature gate {name} to true: it switches on {_some(_missing(name, entries))}, which are not "
            "built here; set the gates that you need one by one"
        )
    return f"cannot set feature gate {name} to true, it is not built here: {verdicts()[name].why}; remove it"


def _missing(group: str, entries: Mapping[str, bool]) -> list[str]:
    """The gates that a group would switch on and that are not built."""
    return [one for one in _of_group(group, entries) if verdicts()[one].is_refused and not known()[one].default]


def _of_group(group: str, entries: Mapping[str, bool]) -> list[str]:
    """The gates that an entry AllAlpha or AllBeta switches: those of its stage without an entry; sorted."""
    stage = _ALL.get(group)
    if stage is None:
        return []
    return sorted(
        name for name, gate in known().items() if gate.stage == stage and name not in _ALL and name not in entries
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
