"""The command why: for what a pod, the node, an actor, an image or a volume waits, down to the root cause.

It reads the wait records of the run directory, so it answers also while actors or the supervisor are stopped. It asks
for a pod's status and events where no record tells the cause, or where the status tells more: a crash loop.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from proto.agent.settings import Settings
from proto.agent.supervisor import ListActors
from proto.common.safe_text import one_line
from proto.node.runtime import EMBEDDED, ListPulls
from proto.node.runtime import endpoint as embedded_endpoint
from proto.waits.chain import Answer, Cause, shown
from proto.waits.facts import ActorState, Facts, collect, states
from proto.waits.obstacles import CRASH_LOOP, Look, events_of
from proto.waits.resolve import AmbiguousSubjectError, UnknownSubjectError, subject_of
from proto.waits.roots import actor_problem
from proto.waits.text import crash_loop, lines, of_status, refused, rejected
from proto.waits.walk import why as walk
from proto.wire.errors import ActorError, ProtocolError
from supervisor.cli import run_directory
from supervisor.cli.common import complete_subject, list_pods, output_option, run_dir_option
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file
from supervisor.ownership import processes
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from proto.pods.config import SourceProblem
    from proto.v1 import Event, Pod

PEERS_S = 0.05
"""The answer of the supervisor adds to the records. It is not waited for any longer."""
STATUS_S = 1.0
"""The time for status, events and config to answer, each. They are not asked when they cannot answer."""
THROTTLING_S = 2.0
"""The time for stats to answer, which reads figures twice. It is asked after a probe's timeout only."""
LOG_BYTES = 8192
"""Read from the end of a log, for its last line."""
LINE_CHARS = 200
MOST_REFUSED = 3
"""Most refused manifests that an answer names."""
MOST_USERS = 3
"""Most processes that an answer names as users of a mount."""
_BUSY = re.compile(r"unmount (/.*): device or resource busy")


class _Agent(NamedTuple):
    """A run directory, and the facts of this moment."""

    run_dir: Path
    facts: Facts
    pod_logs_dir: str

    def answers(self, actor: str) -> bool:
        """True when no reason is known why the actor would not."""
        return actor_problem(self.facts, actor) is None


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return complete_subject(ctx, param, incomplete, ("pod/", "node", "actor/", "image/", "volume/"))


@click.command()
@click.argument("subject", shell_complete=_complete)
@run_dir_option
@output_option("json")
def why(subject: str, run_dir: str, output: str | None) -> None:
    """Tell why SUBJECT waits: pod/NAME, node, actor/NAME, image/NAME or volume/NAME.

    Example: supervisor why pod/web
    """
    began = time.monotonic()
    try:
        answer = explain(Path(run_dir), subject)
    except UnknownSubjectError as error:
        raise CommandError(str(error)) from error
    if output == "json":
        render.echo(render.json_text(_plain(answer, round((time.monotonic() - began) * 1000, 1))))
        return
    render.echo(one_line(answer.sentence))
    for line in lines(answer):
        render.echo(line)


def _plain(answer: Answer, took_ms: float) -> dict[str, object]:
    """Every key, also of empty values."""
    causes = [
        render.fields(cause) | {"links": [render.fields(link) for link in cause.links]} for cause in answer.causes
    ]
    return {"subject": answer.subject, "sentence": answer.sentence, "causes": causes, "took_ms": took_ms}


def explain(run_dir: Path, text: str) -> Answer:
    """The answer for a subject as people write it. Raises UnknownSubjectError and CommandError."""
    settings = _settings(run_dir)
    agent = _Agent(run_dir, gather(run_dir, settings.container_runtime_endpoint), settings.pod_logs_dir)
    if not text.startswith("pod/") or agent.facts.agent_gone:
        return walk(agent.facts, subject_of(text, agent.facts))
    try:
        answer = walk(agent.facts, subject_of(text, agent.facts))
    except UnknownSubjectError:
        answer = Answer(subject=text)
    return _with_status(agent, answer) if answer.causes else _of_status(agent, text, settings.node_name)


def _with_status(agent: _Agent, answer: Answer) -> Answer:
    """The answer, with what other facts add: a container's last end, what a rejected pod asks for, and the like."""
    first = answer.causes[0]
    last = first.links[-1] if first.links else None
    if last is None:
        return answer
    if busy := _BUSY.search(last.error):
        told = _with_users(first, busy[1])
    elif first.code == "cri" and last.what == "PullImage":
        told = _with_progress(agent, first)
    elif last.what.endswith(CRASH_LOOP) or last.kind == "admission":
        pods = _pods(agent) or ()
        pod = _named(pods, answer.subject)
        if pod is None:
            return answer
        crashes = last.kind != "admission"
        told = crash_loop(answer.subject, pod, first, _look(agent, pod)) if crashes else rejected(pod, first, pods)
    else:
        return answer
    return msgspec.structs.replace(answer, causes=(told, *answer.causes[1:]))


def _with_users(cause: Cause, path: str) -> Cause:
    """The cause, with processes that use a mount which is busy."""
    found = {pid: f"process {pid} {processes.name(pid)}: {how}" for pid, how in processes.users(path)}
    if not found:
        return cause
    some = "; ".join(list(found.values())[:MOST_USERS])
    more = f"; and {len(found) - MOST_USERS} more" if len(found) > MOST_USERS else ""
    return msgspec.structs.replace(cause, sentence=f"{cause.sentence} ({some}{more})")


def _with_progress(agent: _Agent, cause: Cause) -> Cause:
    """The cause, with the bytes of a pull so far. Only the embedded runtime tells them."""
    names = [link.waiter.removeprefix("image/") for link in cause.links if link.waiter.startswith("image/")]
    if not names or "runtime" not in agent.facts.tables or not agent.answers("runtime"):
        return cause
    try:
        with Client(str(agent.run_dir)) as client:
            pulls = client.ask("runtime", ListPulls(), STATUS_S).pulls
    except (ActorError, ProtocolError, OSError):
        return cause
    own = next((one for one in pulls if one.name == names[-1] or one.name.endswith(f"/{names[-1]}")), None)
    if own is None or not own.total_bytes:
        return cause
    sizes = f"{own.done_bytes / 1e6:.1f} of {own.total_bytes / 1e6:.1f} MB"
    layers = f"{own.layers_done} of {own.layers} layers"
    return msgspec.structs.replace(cause, sentence=f"{cause.sentence}; {sizes} so far, {layers}")


def _of_status(agent: _Agent, text: str, node_name: str) -> Answer:
    """The answer for a pod of which nothing is recorded."""
    pods = _pods(agent)
    names = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods or ()]
    try:
        subject = subject_of(text, agent.facts, names, node_name)
    except AmbiguousSubjectError:
        raise
    except UnknownSubjectError as error:
        if pods is None:
            raise _no_answer(text) from error
        return _unknown(agent, text, node_name, str(error))
    answer = walk(agent.facts, subject)
    if answer.causes:
        return _with_status(agent, answer)
    if pods is None:
        raise _no_answer(subject)
    pod = _named(pods, subject)
    if pod is None:
        return _unknown(agent, subject, node_name, f"cannot find {shown(subject)}; `supervisor pods` lists all pods")
    return of_status(subject, pod, _look(agent, pod))


def _no_answer(subject: str) -> CommandError:
    return CommandError(
        f"cannot tell why {shown(subject)} waits: no wait of it is recorded, and status does not answer; "
        "see `supervisor why actor/status`"
    )


def _unknown(agent: _Agent, text: str, node_name: str, problem: str) -> Answer:
    """The answer for a pod that does not exist: its manifest is refused. Raises UnknownSubjectError with `problem`.

    A refused manifest has no pod's name, so its file is found by name. Else the error names the refused ones.
    """
    found = _refused(agent)
    name = text.rpartition("/")[2]
    own = [one for one in found if Path(one.file).stem in (name, name.removesuffix(f"-{node_name}"))]
    if own:
        return refused(text, [_line(one) for one in own[:MOST_REFUSED]])
    if found:
        some = "; ".join(_line(one) for one in found[:MOST_REFUSED])
        more = f", and {len(found) - MOST_REFUSED} more" if len(found) > MOST_REFUSED else ""
        raise UnknownSubjectError(f"{problem}; refused manifests: {some}{more}")
    raise UnknownSubjectError(problem)


def _line(problem: SourceProblem) -> str:
    where = ":".join([problem.file, *([str(problem.line)] if problem.line else [])])
    return f"{where}: {f'{problem.field}: ' if problem.field else ''}{problem.problem}"


def _settings(run_dir: Path) -> Settings:
    try:
        return settings_file.read(run_dir)
    except OSError:
        return Settings(run_dir=str(run_dir))


def _actors(run_dir: Path, timeout_s: float) -> tuple[dict[str, ActorState], str]:
    """The supervisor's view of the actors; without its answer nothing, and the reason if the agent has ended."""
    with Client(str(run_dir)) as client:
        try:
            return states(client.ask("supervisor", ListActors(with_memory=False), timeout_s).rows), ""
        except (ActorError, ProtocolError, OSError):
            return {}, client.gone()


def gather(run_dir: Path, endpoint: str) -> Facts:
    """The facts of this moment. The supervisor has `PEERS_S` to add its view of the actors.

    Without any record it has `STATUS_S`: an agent that has just started may be slow.
    """
    endpoint = embedded_endpoint(str(run_dir)) if endpoint == EMBEDDED else endpoint
    rows, gone = _actors(run_dir, PEERS_S)
    facts = collect(run_dir, rows, endpoint, gone)
    if not facts.tables and not rows and not gone:
        rows, gone = _actors(run_dir, STATUS_S)
        facts = collect(run_dir, rows, endpoint, gone)
    if not facts.tables and not rows:
        run_directory.check(run_dir, "waits")
        raise CommandError(f"cannot find an agent in {run_dir}: start one, or name its run directory with --run-dir")
    return facts


def _pods(agent: _Agent) -> Sequence[Pod] | None:
    """Every pod with its status; None when status does not answer."""
    if not agent.answers("status"):
        return None
    try:
        with Client(str(agent.run_dir)) as client:
            return list_pods(client, STATUS_S)
    except (ActorError, ProtocolError, OSError):
        return None


def _named(pods: Sequence[Pod], subject: str) -> Pod | None:
    return next((pod for pod in pods if f"pod/{pod.metadata.namespace}/{pod.metadata.name}" == subject), None)


def _look(agent: _Agent, pod: Pod) -> Look:
    """The pod's events, if the actor answers."""
    found: tuple[Event, ...] = ()
    if agent.answers("events"):
        from proto.pods.events import ListEvents  # noqa: PLC0415 - loads the API types, which most answers do without

        with suppress(ActorError, ProtocolError, OSError), Client(str(agent.run_dir)) as client:
            found = client.ask("events", ListEvents(), STATUS_S).events
    return Look(
        events_of(pod, found),
        time.time(),
        throttling=partial(_throttling, agent, pod.metadata.uid),
        last_line=partial(_last_line, agent.pod_logs_dir),
    )


def _last_line(pod_logs_dir: str, pod: Pod, container: str, previous: bool) -> str:
    """The last line of the log of a container's run; empty without one. A pod may write anything there."""
    from actors._host.files.untrusted_files import read_tail  # noqa: PLC0415 - for ends only
    from actors._logs import files  # noqa: PLC0415
    from actors._logs.entries import Formatter  # noqa: PLC0415

    try:
        path = files.log_file(pod_logs_dir, pod, container, previous=previous)
        data, whole = read_tail(str(path), LOG_BYTES)
    except (files.NoSuchContainer, OSError):
        return ""
    text = Formatter().feed(data if whole else data.partition(b"\n")[2])
    found = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return found[-1][:LINE_CHARS] if found else ""


def _throttling(agent: _Agent, uid: str, container_id: str) -> str:
    """The text on a CPU limit that throttles the container; empty without throttling, or when stats does not answer."""
    from proto.node.stats import GetThrottling  # noqa: PLC0415 - after a probe's timeout only

    if not agent.answers("stats"):
        return ""
    try:
        with Client(str(agent.run_dir)) as client:
            request = GetThrottling(pod_uid=uid, container_id=container_id)
            return client.ask("stats", request, THROTTLING_S).in_words
    except (ActorError, ProtocolError, OSError):
        return ""


def _refused(agent: _Agent) -> tuple[SourceProblem, ...]:
    """The refused manifests; none when config does not answer."""
    from proto.pods.config import ListSources  # noqa: PLC0415 - for unknown pods only

    if not agent.answers("config"):
        return ()
    try:
        with Client(str(agent.run_dir)) as client:
            return client.ask("config", ListSources(), STATUS_S).problems
    except (ActorError, ProtocolError, OSError):
        return ()
