"""Each fault in each actor, beside pods with probes: no readiness changes, no restart, no other process ends.

NODEVISOR_PROOF_PODS is the number of pods, with a readiness and a liveness probe each second. A row is one fault: over
all actors, with the times until the actor serves again. NODEVISOR_PROOF_ROUNDS is how often each actor is killed.
NODEVISOR_PROOF_QUIET=1 holds the times after a kill to those of a quiet machine. The agent is a node of a real API
server and sends traces to a collector, so that it has every actor.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import yaml

from proto.agent import registry
from proto.agent.faults import Fault
from proto.agent.supervisor import ActorRow, EndFaults, InjectFault, Started
from supervisor.sockets.client import CannotReach, Client
from tests.agent.agent import Agent, container, pod
from tests.agent.embedded import embedded_agent
from tests.agent.faults import Eye, condition
from tests.agent.joined import embedded_node
from tests.harness import wait_for
from tests.ports import free_ports
from tests.tracing.collector import collector

PODS = int(os.environ.get("NODEVISOR_PROOF_PODS", "30"))
ROUNDS = int(os.environ.get("NODEVISOR_PROOF_ROUNDS", "5"))
QUIET = os.environ.get("NODEVISOR_PROOF_QUIET") == "1"


class Case(NamedTuple):
    """A kind of fault. A stop and a removed socket are mended within three heartbeats."""

    within_s: float
    """The longest time until the actor serves again, on a busy machine."""
    duration_s: float = 10.0
    value: float = 0.0


FAULTS = {
    "kill": Case(5.0),
    "stop": Case(15.0),
    "exception": Case(5.0),
    "start": Case(10.0, duration_s=0.3),
    "busy": Case(30.0, duration_s=60.0),
    "leak": Case(60.0, duration_s=120.0, value=320.0),
    "socket": Case(15.0),
}
CEILING = {"memory_ceiling_mib": 256, "memory_patience_s": 20}
"""The leak passes it in a second. Actors that always have a call in flight use up their patience."""
QUIET_S = {"median_s": 0.050, "p99_s": 0.150}
"""After a kill."""
TIMES = {"periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 10}
EXEC = {"exec": {"command": ["true"]}, **TIMES}
HTTP = {"httpGet": {"port": 8080, "path": "/"}, **TIMES}
SERVE = "mkdir /w; echo > /w/index.html; exec httpd -f -p 8080 -h /w"
EXEC_EVERY = 6
"""One pod of so many has probes that run a program: each costs some 20 ms of CPU time, and two cores have few."""


class Starts(threading.Thread):
    """Hears when incarnations start to serve, by monotonic time."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._client = Client(agent.run_dir)
        self.at: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        try:
            for event in self._client.events():
                if isinstance(event, Started):
                    self.at[event.name, event.incarnation] = time.monotonic()
        except CannotReach:  # the agent has ended
            self._client.close()

    def after(self, name: str, incarnation: int) -> float | None:
        """When a later incarnation started to serve; None before."""
        found = [at for (one, number), at in list(self.at.items()) if one == name and number > incarnation]
        return max(found, default=None)


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


def one_fault(eye: Eye, starts: Starts, kind: str, actor: str) -> dict[str, Any]:
    """Inject it, wait until the next incarnation serves, and compare."""
    case = FAULTS[kind]
    witness = Witness(eye)
    wait_for(lambda: all(found[0] == "True" for found in witness.pods().values()), 60, "pods ready")
    before, others, row = witness.pods(), witness.processes(actor), eye.actors()[actor]
    began = time.monotonic()
    fault = Fault(kind=kind, actor=actor, value=case.value)
    eye.client.ask("supervisor", InjectFault(fault=fault, duration_s=case.duration_s), 10.0)
    back_s = wait_for(lambda: starts.after(actor, row.incarnation), 90, f"{actor} serves again after {kind}") - began
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


def row_of(kind: str, found: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """The summary of one fault over the actors."""
    times = sorted(one["back_s"] for _, one in found)
    changed = {name: one["changed"] for name, one in found if one["changed"]}
    ended = {name: one["ended"] for name, one in found if one["ended"]}
    row = {
        "fault": kind,
        "actors": len({name for name, _ in found}),
        "faults": len(found),
        "pods": PODS,
        "median_s": statistics.median(times),
        "p99_s": times[min(len(times) - 1, int(len(times) * 0.99))],
        "longest": max((one["back_s"], name) for name, one in found)[1],
        "changed pods": changed or 0,
        "ended others": ended or 0,
    }
    late = [name for name, most_s in QUIET_S.items() if row[name] > most_s] if kind == "kill" and QUIET else []
    return row | {"passed": not changed and not ended and not late and times[-1] <= FAULTS[kind].within_s}


def rows(kinds: Iterable[str] = FAULTS, actors: Iterable[str] = (), cluster: bool = True) -> list[dict[str, Any]]:
    """A row for each fault. Without a cluster, the agent is alone, with the actors for that."""
    with node_with_every_actor() if cluster else embedded_agent("--fault-injection", prepare=with_ceiling) as agent:
        eye, starts = Eye(agent), Starts(agent)
        starts.start()
        names = [f"p{number}" for number in range(PODS)]
        for number, name in enumerate(names):
            check = HTTP if number % EXEC_EVERY else EXEC
            agent.write(name, pod(name, container("c", SERVE, readinessProbe=check, livenessProbe=check)))
        wait_for(lambda: eye.ready(*names), 300, "pods ready")
        chosen = list(actors) or sorted(registry.NAMES)
        found = []
        for kind in kinds:
            turns = chosen * (ROUNDS if kind == "kill" else 1)
            found.append(row_of(kind, [(actor, one_fault(eye, starts, kind, actor)) for actor in turns]))
            print(f"matrix: {found[-1]}", flush=True)
        eye.client.close()
    return found


@contextmanager
def node_with_every_actor() -> Iterator[Agent]:
    """An agent that is a node, with every part that is optional."""
    with collector() as spans:

        def prepare(agent: Agent) -> None:
            with_ceiling(agent)
            tracing = {"endpoint": f"127.0.0.1:{spans.port}", "samplingRatePerMillion": 1_000_000}
            more = {"podCIDR": "10.250.250.0/24", "rotateCertificates": True, "tracing": tracing}
            agent.config.write_text(yaml.safe_dump(yaml.safe_load(agent.config.read_text()) | more))
            console, page = (f"127.0.0.1:{port}" for port in free_ports(2))
            agent.flags += [f"--console-address={console}", f"--page-address={page}"]

        with embedded_node(prepare) as one:
            yield one.agent


def with_ceiling(agent: Agent) -> None:
    """Give each actor a memory ceiling that a leak can pass."""
    path = agent.dir / "supervisor.yaml"
    path.write_text(yaml.safe_dump({"defaults": CEILING}))
    agent.flags += ["--supervisor-config", str(path)]
