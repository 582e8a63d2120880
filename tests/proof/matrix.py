"""Each fault in each actor, beside pods with probes: no readiness changes, no restart, no other process ends.

NODEVISOR_PROOF_PODS is the number of pods, with a readiness and a liveness probe each second. A row is one fault: over
all actors, with the times until the actor serves again.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from typing import Any

from proto.agent.faults import Fault
from proto.agent.supervisor import ActorRow, EndFaults, InjectFault
from tests.agent.agent import container, pod
from tests.agent.embedded import embedded_agent
from tests.agent.faults import Eye, condition
from tests.harness import wait_for

PODS = int(os.environ.get("NODEVISOR_PROOF_PODS", "30"))
FAULTS: dict[str, dict[str, Any]] = {
    "kill": {},
    "stop": {},
    "exception": {},
    "start": {"duration_s": 0.3},
    "busy": {"duration_s": 60.0},
    "socket": {},
}
WITHIN_S = {"kill": 5.0, "exception": 5.0, "start": 10.0, "stop": 15.0, "socket": 15.0, "busy": 30.0}
"""Longest time until the actor serves again: bounds of a busy machine, a stop and a socket within three heartbeats."""
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 10}


class Witness:
    """The state of the pods and processes that a fault must not change."""

    def __init__(self, eye: Eye) -> None:
        self._eye = eye

    def pods(self) -> dict[str, tuple[str, ...]]:
        """By pod: since when it is Ready, and the IDs and restart counts of its containers."""
        found = {}
        for name, one in wait_for(self._eye.pods, 30, "pods listed").items():
            since = [c.last_transition_time for c in one.status.conditions if c.type == "Ready"]
            containers = [(c.container_id, c.restart_count) for c in one.status.container_statuses]
            found[name] = (condition(one, "Ready"), str(since), str(containers))
        return found

    def processes(self, but: str) -> dict[str, int]:
        """Pids of the other actors."""
        rows: dict[str, ActorRow] = wait_for(self._eye.actors, 30, "actors listed")
        return {name: row.pid for name, row in rows.items() if name != but}


def one_fault(eye: Eye, kind: str, actor: str) -> dict[str, Any]:
    """Inject it, wait until the next incarnation serves, and compare."""
    witness = Witness(eye)
    wait_for(lambda: all(found[0] == "True" for found in witness.pods().values()), 60, "pods ready")
    before, others, row = witness.pods(), witness.processes(actor), eye.actors()[actor]
    began = time.monotonic()
    duration_s = FAULTS[kind].get("duration_s", 10.0)
    eye.client.ask("supervisor", InjectFault(fault=Fault(kind=kind, actor=actor), duration_s=duration_s), 10.0)

    def back() -> ActorRow | None:
        now = eye.actors().get(actor)
        return now if now is not None and now.state == "ready" and now.incarnation > row.incarnation else None

    wait_for(back, 60, f"{actor} serves again after {kind}")
    back_s = time.monotonic() - began
    eye.client.ask("supervisor", EndFaults(), 10.0)
    settle(eye)
    after = witness.pods()
    return {
        "back_s": back_s,
        "changed": sorted(name for name in before if after.get(name) != before[name]),
        "ended": sorted(name for name, pid in witness.processes(actor).items() if others.get(name) != pid),
    }


def settle(eye: Eye) -> None:
    """Wait for two rounds of the probes after the fault, so that a late effect counts for this fault."""
    until = time.monotonic() + 2.0
    wait_for(lambda: time.monotonic() > until and eye.all_ready(), 30, "every actor serves")


def row_of(kind: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The summary of one fault over the actors."""
    times = sorted(one["back_s"] for one in found.values())
    changed = {name: one["changed"] for name, one in found.items() if one["changed"]}
    ended = {name: one["ended"] for name, one in found.items() if one["ended"]}
    return {
        "fault": kind,
        "actors": len(found),
        "pods": PODS,
        "median_s": statistics.median(times),
        "p99_s": times[min(len(times) - 1, int(len(times) * 0.99))],
        "changed pods": changed or 0,
        "ended others": ended or 0,
        "passed": not changed and not ended and times[-1] <= WITHIN_S[kind],
    }


def rows(kinds: Iterable[str] = FAULTS, actors: Iterable[str] = ()) -> list[dict[str, Any]]:
    """A row for each fault."""
    with embedded_agent("--fault-injection") as agent:
        eye = Eye(agent)
        names = [f"p{number}" for number in range(PODS)]
        for name in names:
            agent.write(name, pod(name, container("c", readinessProbe=PROBE, livenessProbe=PROBE)))
        wait_for(lambda: eye.ready(*names), 300, "pods ready")
        chosen = list(actors) or [name for name in eye.actors() if name not in ("supervisor", "forkserver")]
        found = [row_of(kind, {actor: one_fault(eye, kind, actor) for actor in chosen}) for kind in kinds]
        eye.client.close()
    return found
