"""The cost of the flight recorder: `python -m tests.bench.recorder --pods 10 --spans 40`.

One agent on a runtime that does nothing, so that no container's work hides the recorder's. Some pods are probed each
second, and in each span as many others start and end. The recorder is on and off in turns.

Two figures: the recorder's own CPU time, by the clock of each thread, and the agent's with it by that without it. The
second one needs many spans, since a machine's speed changes by a third within a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from proto.agent import recording
from proto.agent.actor import Evaluate
from proto.pods.pod_columns import is_ready
from supervisor.sockets.client import Client
from tests.bench.harness import agent, pods, usage
from tests.bench.harness.null_runtime import null_runtime
from tests.bench.measurements.probes import probed

PODS = 10
SPANS = 40
"""With the recorder, and as many without."""
SPAN_S = 1.0
"""The length of a span, unless its pods take longer: each probed pod is probed once."""
SUPERVISION = ("supervisor", "forkserver")
"""Processes without a recorder."""
MODULE = "__import__('sys').modules['actors._base.recording'].__dict__"
OFF = f"{MODULE}.update(kept={MODULE}.get('kept') or {MODULE}['current'], current=None)"
ON = f"{MODULE}.update(current={MODULE}.get('kept') or {MODULE}['current'])"
"""Expressions for an actor: the same process with the recorder and without, since two processes differ by more."""
CLOCK = "__import__('importlib').import_module('tests.bench.harness.recorder_clock')"


class Cost(NamedTuple):
    """CPU seconds of an agent in spans of the same work, with its recorder and without."""

    with_s: Sequence[float]
    without_s: Sequence[float]
    own_ratio: float
    """The agent's time by the same without that in the recorder, of further spans."""

    @property
    def ratio(self) -> float:
        """The mean of the ratios of neighbouring spans."""
        return statistics.mean(self._ratios())

    @property
    def error(self) -> float:
        """The standard error of `ratio`."""
        found = self._ratios()
        return statistics.stdev(found) / math.sqrt(len(found))

    def _ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.with_s, self.without_s, strict=True)]


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) makes it."""
    return ~pid << 3 | 2


class Recorded:
    """A running agent, whose recorder is switched and whose pods come and go."""

    def __init__(self, running: agent.Agent, client: Client) -> None:
        self._client, self._agent = client, running
        self._names = [row.name for row in client.actors() if row.name not in SUPERVISION]
        self._staged = running.directory / "staged"

    def _evaluate(self, name: str, expression: str) -> str:
        found = self._client.ask(name, Evaluate(expression=expression), 10.0)
        if found.error:
            raise RuntimeError(f"cannot evaluate {expression} in {name}: {found.error}")
        return found.text

    def switch(self, *, on: bool) -> None:
        """Let all actors record, or not."""
        for name in self._names:
            self._evaluate(name, ON if on else OFF)
            if self._evaluate(name, f"{MODULE}['current'] is not None") != str(on):
                raise RuntimeError(f"cannot switch the recorder of {name}")

    def install_clock(self) -> None:
        """Time the recorder's calls from now on."""
        for name in self._names:
            self._evaluate(name, f"{CLOCK}.install()")

    def recorder_s(self) -> float:
        """CPU seconds in the recorder so far, of all actors."""
        return sum(int(self._evaluate(name, f"{CLOCK}.spent_ns()")) for name in self._names) / 1e9

    def agent_s(self) -> float:
        """CPU seconds of all processes so far: in ns, where the ticks of /proc/PID/stat are too coarse."""
        return sum(time.clock_gettime(cpu_clock(pid)) for pid in usage.tree(self._agent.process.pid))

    def span(self, count: int) -> float:
        """Start so many pods beside the running ones, and end them; the agent's CPU seconds."""
        before, end = self.agent_s(), time.monotonic() + SPAN_S
        standing = len(self._agent.pods())
        written = pods.write(self._staged, count)
        started = self._agent.total_after(agent.STARTED, count)
        paths = [path.rename(self._agent.manifests / f"span-{path.name}") for path in written]
        self._agent.until_pods(lambda: self._ready() == standing + count, "running its pods", agent.STARTED, started)
        removed = self._agent.total_after(agent.REMOVED, count)
        for path in paths:
            path.unlink()
        self._agent.until_pods(lambda: len(self._agent.pods()) == standing, "rid of its pods", agent.REMOVED, removed)
        time.sleep(max(0.0, end - time.monotonic()))
        return self.agent_s() - before

    def _ready(self) -> int:
        return sum(map(is_ready, self._agent.pods()))

    def size_on_disk(self) -> int:
        """Bytes of the recordings."""
        return sum(path.stat().st_blocks * 512 for path in recording.files(str(self._agent.client.run_dir)))


@contextmanager
def recorded_agent(count: int) -> Iterator[Recorded]:
    """An agent with `count` probed pods."""
    with (
        tempfile.TemporaryDirectory(prefix="nvbench-") as name,
        null_runtime(Path(name)) as cri,
        agent.Agent(cri.endpoint, Path(name)) as running,
        Client(Path(running.client.run_dir), role="debug") as client,
    ):
        running.add(count, lambda pod: probed(f"probed-{pod}", {"exec": {"command": ["probe", pod]}}))
        yield Recorded(running, client)
        running.remove_all(cri)


def measure(count: int = PODS, spans: int = SPANS) -> tuple[Cost, int]:
    """The cost, and the bytes of the recordings."""
    used: dict[bool, list[float]] = {True: [], False: []}
    with recorded_agent(count) as recorded:
        recorded.span(count)  # loads what a first pod needs
        for number in range(spans):
            for on in (True, False) if number % 2 else (False, True):  # a drift costs both the same
                recorded.switch(on=on)
                used[on].append(recorded.span(count))
        recorded.switch(on=True)
        recorded.install_clock()
        before = recorded.recorder_s()
        agent_s = sum(recorded.span(count) for _ in range(spans))
        own_ratio = agent_s / (agent_s - (recorded.recorder_s() - before))
        return Cost(used[True], used[False], own_ratio), recorded.size_on_disk()


def main() -> None:
    """Print the cost as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recorder", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--spans", type=int, default=SPANS)
    options = parser.parse_args()
    cost, size = measure(options.pods, options.spans)
    figures = {"own_ratio": cost.own_ratio, "ratio": cost.ratio, "error": cost.error}
    rounded = {name: round(value, 4) for name, value in figures.items()}
    print(json.dumps({"pods": options.pods, "spans": options.spans, **rounded, "bytes": size}))


if __name__ == "__main__":
    main()
