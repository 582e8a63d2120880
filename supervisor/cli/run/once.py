"""`supervisor start --run-once`: the manifests' pods brought to their state, a line for each, and an exit code.

The agent is `supervisor start` with the same flags, as a child process; it ends with the verdict, the pods stay. The
kubelet had such a mode (`--runonce`, `runOnce`) until 1.31.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from proto.pods.pod_columns import columns, is_ready
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli.common import list_pods
from supervisor.cli.errors import INTERRUPTED
from supervisor.cli.run.agent import START, Agent, Interrupts
from supervisor.cli.views import render
from supervisor.config.flags.parser import Given
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from proto.pods.config import Sources
    from proto.v1 import Pod

TIMEOUT = "5m0s"
POLL_S = 0.25


class Verdict(NamedTuple):
    """How far one pod or manifest has come."""

    line: str
    fine: bool
    final: bool
    """Waiting does not change it."""


class Look(NamedTuple):
    """The agent at one moment."""

    verdicts: list[Verdict]
    begun: bool
    """It knows all manifests and what the runtime has; without a runtime it does not get there."""

    @property
    def over(self) -> bool:
        """Nothing is to be waited for."""
        return self.begun and all(one.final for one in self.verdicts)


def run_once(given: Given, run_dir: str, timeout_s: float) -> int:
    """Start the agent, wait until every pod is fine or failed or the time is over, end the agent; the exit code."""
    line = given.line[:-1] if given.line[-1:] == ("--",) else given.line
    agent = Agent([*START, *line, "--run-once=false"])  # the last one counts, as everywhere
    with Interrupts() as interrupts, Client(run_dir) as client:
        agent.start()
        deadline = time.monotonic() + timeout_s
        found: Look | None = None
        while (found is None or not found.over) and time.monotonic() < deadline:
            interrupts.wait(POLL_S, agent.pidfd)
            if interrupts.count or not agent.alive():
                break
            found = found if (now := _look(client, agent.pid)) is None else now
        return _conclude(agent, interrupts.count > 0, found, timeout_s)


def _look(client: Client, pid: int) -> Look | None:
    """What there is; None while the agent cannot say, or while another one has the run directory."""
    from proto.pods.config import ListSources  # noqa: PLC0415 - loads the API types
    from proto.pods.pod_workers import ListPodWorkers  # noqa: PLC0415

    try:
        if not any(row.name == "supervisor" and row.pid == pid for row in client.actors()):
            return None
        begun = client.ask("pod_workers", ListPodWorkers(), 1.0).sources_ready  # before the sources: those it has
        return Look(verdicts(client.ask("config", ListSources(), 1.0), list_pods(client, 1.0)), begun)
    except (ActorError, ProtocolError):
        return None


def verdicts(sources: Sources, pods: Iterable[Pod]) -> list[Verdict]:
    """Of every pod that is declared, and of every manifest that is wrong."""
    present = {
        f"{pod.metadata.namespace}/{pod.metadata.name}": pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None  # a former pod of that name, on its way out
    }
    declared = sorted(name for names in sources.pods.values() for name in names)
    found = [_of_pod(name, present.get(name)) for name in declared]
    for problem in sources.problems:
        where = ":".join([problem.file, *([str(problem.line)] if problem.line else [])])
        what = f"{problem.field}: {problem.problem}" if problem.field else problem.problem
        found.append(Verdict(f"{where}  {what}", fine=False, final=True))
    return found


def _of_pod(name: str, pod: Pod | None) -> Verdict:
    """A pod that restarts its containers for ever has to be ready, any other has to have succeeded."""
    if pod is None:
        return Verdict(f"{name}  not started", fine=False, final=False)
    shown = columns(pod, 0.0)
    runs_on = pod.spec.restart_policy in (None, "", "Always")
    fine = pod.status.phase == "Succeeded" or (runs_on and is_ready(pod))
    parts = [name, shown.ready, shown.status, "" if fine else _message(pod)]
    return Verdict("  ".join(filter(None, parts)), fine, final=fine or pod.status.phase == "Failed")


def _message(pod: Pod) -> str:
    """What somebody had to say about the pod, or the first of its containers; on one line."""
    said = [pod.status.message]
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        said += [state.message for state in (container.state.waiting, container.state.terminated) if state is not None]
        if container.state.terminated is not None and container.state.terminated.exit_code:
            said.append(f"container {container.name} ended with exit code {container.state.terminated.exit_code}")
    return " ".join(next(filter(None, said), "").split())


def _conclude(agent: Agent, interrupted: bool, found: Look | None, timeout_s: float) -> int:
    alive = agent.alive()
    agent.end()
    shown = found.verdicts if found is not None else []
    for one in shown:
        render.echo(one.line)
    if interrupted:
        render.echo("Interrupted; pods stay as they are.", err=True)
        return INTERRUPTED
    problem = "" if alive else f"the agent ended by itself ({agent.how_it_ended()})"
    problem = problem or _problem(found, timeout_s)
    if problem:
        render.echo(f"supervisor: {problem}; pods stay as they are", err=True)
    elif not shown:
        render.echo("No manifests: there is nothing to run.", err=True)
    return 1 if problem else 0


def _problem(found: Look | None, timeout_s: float) -> str:
    """What is wrong with the end of it; empty when all is fine."""
    if found is None:
        return f"the agent was not in service within {timeout_s:g} s"
    missing = sum(not one.fine for one in found.verdicts)
    late = "" if found.over else f" within {timeout_s:g} s"
    if missing:
        return f"{missing} of {len(found.verdicts)} are not ready or completed{late}"
    return "" if found.begun else f"the agent has not heard of the container runtime{late}"
