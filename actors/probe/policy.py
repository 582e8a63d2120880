"""One probe of one container: when it runs next, and what its outcomes make of the standing result.

The rules are those of the kubelet's prober worker (pkg/kubelet/prober) and of
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes. Pure: outcomes and times come in.
Not here: how a container is asked.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, NamedTuple

from actors._net.probing.outcome import Outcome
from proto.v1 import Probe
from proto.wire.message import Record

Kind = Literal["liveness", "readiness", "startup"]
KINDS: tuple[Kind, ...] = ("startup", "liveness", "readiness")
Result = Literal["success", "failure", "unknown"]

INITIAL: dict[Kind, Result] = {"liveness": "success", "readiness": "failure", "startup": "unknown"}
"""The standing result of a container that has not been probed."""

MAX_MESSAGE = 1024
"""Characters of a standing result's message: what an Event holds."""


class Timing(NamedTuple):
    """A Probe's numbers with the API's defaults filled in. Seconds."""

    initial_delay_s: float = 0.0
    timeout_s: float = 1.0
    period_s: float = 10.0
    success_threshold: int = 1
    failure_threshold: int = 3


def timing(probe: Probe) -> Timing:
    """The numbers of a Probe. Zero means the default, as in the API server's defaulting."""
    default = Timing()
    return Timing(
        float(probe.initial_delay_seconds or 0),
        float(probe.timeout_seconds or default.timeout_s),
        float(probe.period_seconds or default.period_s),
        probe.success_threshold or default.success_threshold,
        probe.failure_threshold or default.failure_threshold,
    )


class Standing(Record, frozen=True, kw_only=True):
    """What is held of one container by one probe. A new container begins anew."""

    result: Result
    message: str = ""
    last: Result | None = None
    """The latest outcome, success or failure."""
    run: int = 0
    """How many times in a row it has been that."""
    on_hold: bool = False
    """A failed liveness or startup probe rests until the container is replaced: probing one that is being stopped
    confuses runtimes."""


def initial(kind: Kind, inherited: Container[str] = ()) -> Standing:
    """The standing of a container that has not been probed. `inherited`: probes that succeeded under the kubelet
    before us, see ProbedContainer."""
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
    # Past its threshold the count says nothing more, and one that stands still needs no new checkpoint.
    return Standing(result=result, message=message(kind, outcome), last=result, run=needed, on_hold=hold)


def not_running(kind: Kind, standing: Standing) -> Standing:
    """The standing once the container does not run: not ready, whatever was last answered.

    The kubelet fails liveness and startup too. Here they stay, since a container that is seen before it runs would
    otherwise be restarted for a probe that never ran.
    """
    return initial(kind) if kind == "readiness" and standing.result == "success" else standing


def is_active(kind: Kind, standing: Standing, *, running: bool, terminating: bool, started: bool) -> bool:
    """True when the container is to be probed now. `started`: it has no startup probe, or that has succeeded."""
    if not running or standing.on_hold:
        return False
    if kind == "startup":
        return not started and not terminating
    return started and (kind == "readiness" or not terminating)


def first_due(numbers: Timing, age_s: float) -> float:
    """Seconds until the first probe of a container that has run for `age_s` seconds.

    Probes keep to the times start + initial delay + n periods. So they go on as before when this process is restarted,
    they spread as their containers' starts do, and the first comes as soon as the container may be probed.
    """
    waited_s = age_s - numbers.initial_delay_s
    if waited_s < 0:
        return min(-waited_s, numbers.initial_delay_s)  # a clock that was set back must not put probing off
    if waited_s < numbers.period_s:
        return 0.0
    return numbers.period_s - waited_s % numbers.period_s


def next_due(numbers: Timing, due: float, ended: float) -> float:
    """When to probe again after the probe that was due at `due` and ended at `ended`; missed turns are not made up."""
    return max(due + numbers.period_s, ended)


def event(kind: Kind, outcome: Outcome) -> tuple[str, str] | None:
    """(reason, message) of the kubelet's Event for an outcome; None for a success."""
    if outcome.kind == "errored":
        text = f"{kind.capitalize()} probe errored and resulted in unknown state: {outcome.output}"
        return "Unhealthy", _cut(text)
    text = message(kind, outcome)
    return ("ProbeWarning" if outcome.kind == "warning" else "Unhealthy", text) if text else None


def message(kind: Kind, outcome: Outcome) -> str:
    """What is said of a container by an outcome; empty for a success, and for one that says nothing of it."""
    if outcome.kind == "failure":
        text = f"{kind.capitalize()} probe failed: {outcome.output}"
    elif outcome.kind == "warning":
        text = f"{kind.capitalize()} probe warning: {outcome.output}"
    else:
        return ""
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."
