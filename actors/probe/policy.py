"""Decides when a container is probed next, and how outcomes change its published result. Pure.

The rules are those of the kubelet's prober worker (pkg/kubelet/prober) and of
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, NamedTuple

from actors._net.probing.outcome import MAX_BODY_BYTES, Outcome
from proto.v1 import Probe
from proto.wire.message import Record

Kind = Literal["liveness", "readiness", "startup"]
KINDS: tuple[Kind, ...] = ("startup", "liveness", "readiness")
Result = Literal["success", "failure", "unknown"]

INITIAL: dict[Kind, Result] = {"liveness": "success", "readiness": "failure", "startup": "unknown"}
"""The standing result of a container that has not been probed."""

MAX_MESSAGE = 1024
"""Limit of a standing result's message in characters. It is in the checkpoint."""
MAX_EVENT = MAX_BODY_BYTES + 256
"""Limit of an event's message in characters: all output of a probe, and the words before it. An API server has none."""


class Timing(NamedTuple):
    """A Probe's numbers with the API's defaults filled in. Seconds."""

    initial_delay_s: float = 0.0
    timeout_s: float = 1.0
    period_s: float = 10.0
    success_threshold: int = 1
    failure_threshold: int = 3


def timing(probe: Probe) -> Timing:
    """Return a Probe's numbers. Zero is the default, as in the API server's defaulting."""
    default = Timing()
    return Timing(
        float(probe.initial_delay_seconds or 0),
        float(probe.timeout_seconds or default.timeout_s),
        float(probe.period_seconds or default.period_s),
        probe.success_threshold or default.success_threshold,
        probe.failure_threshold or default.failure_threshold,
    )


class Standing(Record, frozen=True, kw_only=True):
    """The standing result of one probe of one container, with its counters."""

    result: Result
    message: str = ""
    last: Result | None = None
    """The latest outcome, success or failure."""
    run: int = 0
    """Count of `last` in a row."""
    on_hold: bool = False
    """A failed liveness or startup probe stops until the container is replaced: exec in a container that is being
    stopped confuses runtimes."""


def initial(kind: Kind, inherited: Container[str] = ()) -> Standing:
    """The standing of a container that has not been probed.

    `inherited`: kinds of probes that succeeded under the kubelet that ran before this agent, see ProbedContainer.
    """
    return Standing(result="success" if kind in inherited else INITIAL[kind])


def settle(kind: Kind, standing: Standing, numbers: Timing, outcome: Outcome) -> Standing:
    """The standing after one more outcome."""
    if outcome.kind == "errored":
        return standing
    result: Result = "failure" if outcome.kind == "failure" else "success"
    run = standing.run + 1 if standing.last == result else 1
    needed = numbers.failure_threshold if result == "failure" else numbers.success_threshold
    if run < needed:
        return Standing(result=standing.result, message=standing.message, last=result, run=run)
    hold = result == "failure" and kind != "readiness"
    # The count stops at its threshold, so that a stable result needs no new checkpoint.
    return Standing(result=result, message=message(kind, outcome), last=result, run=needed, on_hold=hold)


def not_running(kind: Kind, standing: Standing) -> Standing:
    """The standing of a container that does not run: not ready.

    The kubelet fails liveness and startup too. Here they stay: else a container that is seen before it runs would be
    restarted for a probe that never ran.
    """
    return initial(kind) if kind == "readiness" and standing.result == "success" else standing


def is_active(kind: Kind, standing: Standing, *, running: bool, terminating: bool, started: bool) -> bool:
    """True when the container is to be probed now. `started`: it has no startup probe, or its startup succeeded."""
    if not running or standing.on_hold:
        return False
    if kind == "startup":
        return not started and not terminating
    return started and (kind == "readiness" or not terminating)


def first_due(numbers: Timing, age_s: float) -> float:
    """Seconds until the first probe of a container that has run for `age_s` seconds.

    Probes run at start + initial delay + n periods. So a restart of this process does not move them, and they are
    spread as the containers' starts are. The first one runs as soon as the container may be probed.
    """
    waited_s = age_s - numbers.initial_delay_s
    if waited_s < 0:
        return min(-waited_s, numbers.initial_delay_s)  # a clock that was set back must not delay probes
    if waited_s < numbers.period_s:
        return 0.0
    return numbers.period_s - waited_s % numbers.period_s


def next_due(numbers: Timing, due: float, ended: float) -> float:
    """The time of the next probe, from the times when the last one was `due` and `ended`. Missed probes are skipped."""
    return max(due + numbers.period_s, ended)


def event(kind: Kind, outcome: Outcome) -> tuple[str, str] | None:
    """(reason, message) of the kubelet's Event for an outcome; None for a success."""
    if outcome.kind == "errored":
        text = f"{kind.capitalize()} probe errored and resulted in {outcome.state} state: {outcome.output}"
        return "Unhealthy", _cut(text, MAX_EVENT)
    text = message(kind, outcome, MAX_EVENT)
    return ("ProbeWarning" if outcome.kind == "warning" else "Unhealthy", text) if text else None


def message(kind: Kind, outcome: Outcome, most: int = MAX_MESSAGE) -> str:
    """The kubelet's message for an outcome; empty for a success and for a probe that could not be carried out.

    `most`: its limit in characters.
    """
    if outcome.kind == "failure":
        text = f"{kind.capitalize()} probe failed: {outcome.output}"
    elif outcome.kind == "warning":
        text = f"{kind.capitalize()} probe warning: {outcome.output}"
    else:
        return ""
    return _cut(text, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
