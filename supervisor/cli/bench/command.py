"""The command bench: what the agent costs on this node, beside a floor that is measured in the same minute.

It reads only, unless --pods asks for pods. Those are this command's own, and gone at its end.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from proto.common.safe_text import one_line
from supervisor.cli.actors.seconds import Seconds
from supervisor.cli.bench import asks, figures, idle, runtime
from supervisor.cli.bench.figures import Figure
from supervisor.cli.bench.pods import rounds as of_pods
from supervisor.cli.bench.pods.ending import interrupts
from supervisor.cli.bench.pods.plan import MOST
from supervisor.cli.bench.pods.rounds import Wanted
from supervisor.cli.common import connect, list_pods, output_option, run_dir_option, runtime_endpoint
from supervisor.cli.errors import CommandError
from supervisor.cli.views import render
from supervisor.host import settings_file
from supervisor.sockets.client import Client

if TYPE_CHECKING:
    from actors._cri.client import Cri

SLEEP = "sh -c \"trap 'exit 0' TERM; sleep 3600 & wait\""
"""Ends at SIGTERM. The first process of a container ignores a SIGTERM that it has no handler for."""


@click.command()
@click.option("--seconds", type=Seconds(0.1, 3600), default=10.0, show_default=True, help="Of the idle rows.")
@click.option("--rounds", type=click.IntRange(1, 20), default=5, show_default=True, help="Of asks and runtime calls.")
@click.option("--pods", "count", type=click.IntRange(1, MOST), metavar="N", help=f"Start N pods, too: 1 to {MOST}.")
@click.option("--image", metavar="IMAGE", help="Their image. It is pulled if the runtime does not have it.")
@click.option(
    "--command", metavar="WORDS", default=SLEEP, help="Their command; empty: the image's.  [default: sh, which sleeps]"
)
@run_dir_option
@output_option("json")
def bench(
    seconds: float, rounds: int, count: int | None, image: str | None, command: str, run_dir: str, output: str | None
) -> None:
    r"""Measure the running agent on this node, beside the same work without it (FLOOR).

    Rows are an ask of each actor beside bare ZeroMQ, calls of the container runtime, and the cost while idle beside
    the runtime's daemon. RATIO is the agent's value by the floor's. All of that only reads.

    --pods starts N pods of IMAGE without the agent, then through a manifest each, then without it again. They are named
    nodevisor-bench-ID-N, and removed at the end, at an error and at Ctrl-C. An API server shows them meanwhile.

    \b
    Example: supervisor bench --pods 10 --image docker.io/library/busybox:latest
    """
    wanted = _wanted(count, image, command)
    with connect(run_dir) as client:
        if wanted is not None:
            client.check_role("CallRuntime")
        bench_ = Bench(client, run_dir, rounds)
        with interrupts():
            try:
                failed = bench_.run(seconds, wanted)
            finally:
                render.progress("")
    bench_.show(output, seconds)
    if failed is not None:
        raise failed


def _wanted(count: int | None, image: str | None, command: str) -> Wanted | None:
    if (count is None) != (image is None):
        raise click.UsageError("--pods and --image belong together")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"cannot read --command: {error}") from error
    return Wanted(count, image, words) if count is not None and image is not None else None


class Bench:
    """One run, and what it found."""

    def __init__(self, client: Client, run_dir: str, rounds: int) -> None:
        """Raises ActorError when no agent runs."""
        self._client = client
        self._run_dir = run_dir
        self._rounds = rounds
        self._rows = client.actors()
        self._pods = len(list_pods(client))
        self._runtime = ""
        self._figures: list[Figure] = []
        self._notes = [f"ask of {row.name}: it is {row.state}" for row in self._rows[2:] if row.state != "ready"]

    def run(self, seconds: float, wanted: Wanted | None) -> CommandError | None:
        """Measure. Returns the error of the pods, after which the other figures count still; raises all others."""
        endpoint = runtime_endpoint(self._run_dir)
        with contextlib.ExitStack() as stack:
            cri = self._open(endpoint, stack, needed=wanted is not None)
            settings = settings_file.read(self._run_dir)
            ready = (
                stack.enter_context(of_pods.prepare(self._client, cri, settings, wanted))
                if wanted is not None and cri is not None
                else None
            )
            self._idle(endpoint, seconds)  # first: what follows is work for the agent
            self._add(asks.measure(self._client, self._actors(), self._rounds, render.progress))
            if cri is not None:
                self._add(runtime.measure(self._client, cri, self._actors(), self._rounds, render.progress))
            if ready is not None:
                try:
                    self._figures += of_pods.measure(ready, render.progress)
                except CommandError as error:
                    return error
        return None

    def _open(self, endpoint: str, stack: contextlib.ExitStack, *, needed: bool) -> Cri | None:
        image_endpoint = settings_file.read(self._run_dir).image_service_endpoint
        try:
            if not endpoint:
                raise CommandError("the agent has no container runtime")
            cri = stack.enter_context(runtime.open_runtime(endpoint, image_endpoint))
        except CommandError as error:
            if needed:
                raise
            self._notes.append(error.message)
            return None
        self._runtime = runtime.name_of(cri)
        return cri

    def _actors(self) -> list[str]:
        return [row.name for row in self._rows[2:] if row.state == "ready"]

    def _idle(self, endpoint: str, seconds: float) -> None:
        listener = runtime.daemon_pid(f"unix://{self._client.path_of('supervisor')}")
        if listener != self._rows[0].pid:
            self._notes.append("idle: the agent is in another pid namespace; run this command there")
            return
        render.progress(f"idle, {seconds:g} s")
        pids = [row.pid for row in self._rows if row.pid]
        self._add(idle.measure(pids, runtime.daemon_pid(endpoint) if endpoint else 0, seconds))

    def _add(self, found: tuple[Sequence[Figure], Sequence[str]]) -> None:
        self._figures += found[0]
        self._notes += found[1]

    # Output

    def show(self, output: str | None, seconds: float) -> None:
        """Print the figures as a table or as JSON."""
        processes = sum(bool(row.pid) for row in self._rows)
        if output == "json":
            render.echo(render.json_text(self._as_json(processes, seconds)))
            return
        where = f"agent at {self._run_dir}: {processes} processes, {self._pods} pods"
        render.echo(one_line(f"{where}, runtime {self._runtime or 'unknown'}"))
        render.table(figures.HEADERS, [figures.cells(one) for one in self._figures], figures.RIGHT)
        for note in self._notes:
            render.echo(f"note: {one_line(note)}")

    def _as_json(self, processes: int, seconds: float) -> dict[str, Any]:
        return {
            "runDir": self._run_dir,
            "runtime": self._runtime,
            "processes": processes,
            "pods": self._pods,
            "rounds": self._rounds,
            "seconds": seconds,
            "figures": [figures.as_json(one) for one in self._figures],
            "notes": self._notes,
        }
