"""The effect of each published field: effective, accepted without effect, or rejected, with the reason.

Effective fields are in `mapping.EFFECTIVE` and `_AT_START`, the others are below. A test fails for a field in none or
two of them. After a change here, generate the page again (`fields`).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from supervisor.config.kubeletconfig.mapping import EFFECTIVE

VerdictKind = Literal["effective", "accepted without effect", "rejected"]


class Verdict(NamedTuple):
    """`why` names the actors that use the field, or the reason why none does."""

    kind: VerdictKind
    why: str


_NO_PROFILING = "for Go programs; a Python process is looked into with the console"
_NO_LOG_OPTIONS = "needs feature gate LoggingAlphaOptions, which is not built"
_DEPRECATED = "has no effect in the kubelet either"

_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "no metric is hidden": ("showHiddenMetricsForVersion",),
    "requests to the API server are in JSON": ("contentType",),
    "the agent attaches no volumes; the cluster's controller does": ("enableControllerAttachDetach",),
    _NO_PROFILING: ("enableContentionProfiling",),
    _DEPRECATED: ("iptablesMasqueradeBit", "iptablesDropBit"),
    "pods' networks are the runtime's CNI plugins', for the kubelet too": ("hairpinMode",),
    "there are no FlexVolume plugins": ("volumePluginDir",),
    "the agent's log is not buffered": ("logging.flushFrequency",),
}

NOR_UPSTREAM = frozenset({"hairpinMode", "iptablesDropBit", "iptablesMasqueradeBit", "runOnce"})
"""Fields that have no effect in the kubelet either."""

ASKS_NOTHING: dict[str, Any] = {"contentType": "application/json"}
"""Values of fields without effect that describe what the agent does anyway."""

_AT_START: dict[str, str] = {
    "failSwapOn": "`supervisor start` refuses swap where true is written; where nothing is, it starts",
    "failCgroupV1": "`supervisor start` refuses cgroup v1 where true is written; where nothing is, it starts",
    "maxOpenFiles": "`supervisor start`, for itself and every actor",
    "oomScoreAdj": "`supervisor start`, for itself and every actor",
    "kubeletCgroups": "`supervisor start` as root, which moves itself there; every actor is its child",
    "healthzPort": "the supervisor's own process: /healthz, and /configz on a loopback address",
    "healthzBindAddress": "the supervisor's own process",
    "protectKernelDefaults": "`supervisor start` sets the kernel's settings right, or refuses to run on wrong ones",
}
"""Fields with an effect before the actors start, so without a setting."""

_REJECTED: dict[str, str] = {
    "runOnce": "true is refused, as by the kubelet since 1.31; use the flag --run-once of `supervisor start`",
    "logging.options.text.splitStream": _NO_LOG_OPTIONS,
    "logging.options.text.infoBufferSize": _NO_LOG_OPTIONS,
    "logging.options.json.splitStream": _NO_LOG_OPTIONS,
    "logging.options.json.infoBufferSize": _NO_LOG_OPTIONS,
}


def verdicts() -> dict[str, Verdict]:
    """The verdict on each field, by path."""
    found = {path: Verdict("effective", effect.used_by) for path, effect in EFFECTIVE.items()}
    found |= {path: Verdict("effective", who) for path, who in _AT_START.items()}
    for reason, paths in _WITHOUT_EFFECT.items():
        for path in paths:
            assert path not in found, f"{path} has two verdicts"
            found[path] = Verdict("accepted without effect", reason)
    for path, reason in _REJECTED.items():
        assert path not in found, f"{path} has two verdicts"
        found[path] = Verdict("rejected", reason)
    return found
