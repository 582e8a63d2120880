"""`supervisor start --run-once`: run the manifests' pods until they are ready or completed, and report each.

The agent is a child process, `supervisor start` with the same flags. It ends with the report, and the pods stay. The
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
    """The result of one pod or manifest."""

    line: str
    fine: bool
    final: bool
    """The result cannot change any more."""


class Progress(NamedTuple):
    """The results so far."""

    verdicts: list[Verdict]
    begun: bool
    """The agent has read all manifests and the runtime's state. Without a runtime it stays False."""

    @property
    def over(self) -> bool:
        """True when all results are final."""
        return self.begun and all(one.final for one in self.verdicts)


def run_once(given: Given, run_dir: str, timeout_s: float) -> int:
    """Start the agent, wait for the pods until they are final or `timeout_s` is over, and return the exit code."""
    line = given.line[:-1] if given.line[-1:] == ("--",) else given.line
    agent = Agent([*START, *line, "--run-once=false"])  # the last occurrence of a flag counts
    with Interrupts() as interrupts, Client(run_dir) as client:
        agent.start()
        deadline = time.monotonic() + timeout_s
        found: Progress | None = None
        while (found is None or not found.over) and time.monotonic() < deadline:
            interrupts.wait(POLL_S, agent.pidfd)
            if interrupts.count or not agent.alive():
                break
            found = found if (now := _progress(client, agent.pid)) is None else now
        return _conclude(agent, interrupts.count > 0, found, timeout_s)


def _progress(client: Client, pid: int) -> Progress | None:
    """The results; None while the agent does not answer, or another agent has the run directory."""
    from proto.pods.config import ListSources  # noqa: PLC0415 - loads the API types
    from proto.pods.pod_workers import ListPodWorkers  # noqa: PLC0415

    try:
        if not any(row.name == "supervisor" and row.pid == pid for row in client.actors()):
            return None
        # Asked before config, so that config's sources are complete.
        begun = client.ask("pod_workers", ListPodWorkers(), 1.0).sources_ready
        return Progress(verdicts(client.ask("config", ListSources(), 1.0), list_pods(client, 1.0)), begun)
    except (ActorError, ProtocolError):
        return None


def verdicts(sources: Sources, pods: Iterable[Pod]) -> list[Verdict]:
    """The results of all declared pods and of rejected manifests."""
    present = {
        f"{pod.metadata.namespace}/{pod.metadata.name}": pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None  # not a former pod of that name that terminates
    }
    declared = sorted(name for names in sources.pods.values() for name in names)
    found = [_of_pod(name, present.get(name)) for name in declared]
    for problem in sources.problems:
        where = ":".join([problem.file, *([str(problem.line)] if problem.line else [])])
        what = f"{problem.field}: {problem.problem}" if problem.field else problem.problem
        found.append(Verdict(f"{where}  {what}", fine=False, final=True))
    return found


def _of_pod(name: str, pod: Pod | None) -> Verdict:
    """A pod with restartPolicy Always must be ready, any other must have succeeded."""
    if pod is None:
        return Verdict(f"{name}  not started", fine=False, final=False)
    shown = columns(pod, 0.0)
    runs_on = pod.spec.restart_policy in (None, "", "Always")
    fine = pod.status.phase == "Succeeded" or (runs_on and is_ready(pod))
    parts = [name, shown.ready, shown.status, "" if fine else _message(pod)]
    return Verdict("  ".join(filter(None, parts)), fine, final=fine or pod.status.phase == "Failed")


def _message(pod: Pod) -> str:
    """The pod's message, or that of its first container with one, in one line."""
    said = [pod.status.message]
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        said += [state.message for state in (container.state.waiting, container.state.terminated) if state is not None]
        if container.state.terminated is not None and container.state.terminated.exit_code:
            said.append(f"container {container.name} ended with exit code {container.state.terminated.exit_code}")
    return " ".join(next(filter(None, said), "").split())


def _conclude(agent: Agent, interrupted: bool, found: Progress | None, timeout_s: float) -> int:
    alive = agent.alive()
    agent.end()
    shown = found.verdicts if found is not None else []
    for one in shown:
        render.echo(one.line)
    if interrupted:
        render.echo("Interrupted; pods stay as they are.", err=True)
        return INTERRUPTED
    problem = "" if alive else f"the agent ended by itself ({agent.exit_text()})"
    problem = problem or _problem(found, timeout_s)
    if problem:
        render.echo(f"supervisor: {problem}; pods stay as they are", err=True)
    elif not shown:
        render.echo("No manifests: there is nothing to run.", err=True)
    return 1 if problem else 0


def _problem(found: Progress | None, timeout_s: float) -> str:
    """The reason of exit code 1; empty when all pods are fine."""
    if found is None:
        return f"the agent was not in service within {timeout_s:g} s"
    missing = sum(not one.fine for one in found.verdicts)
    late = "" if found.over else f" within {timeout_s:g} s"
    if missing:
        return f"{missing} of {len(found.verdicts)} are not ready or completed{late}"
    return "" if found.begun else f"the container runtime has not answered{late}"
