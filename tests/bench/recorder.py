"""The cost of the flight recorder: `python -m tests.bench.recorder [PODS] [SECONDS]`.

One agent, with the recorder and without it in turns: two agents with the same pods differ by 4 % without a cause.
Printed are the CPU time of all its processes in spans of the same length, and the bytes that the recordings take.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from proto.agent import recording
from proto.agent.actor import Evaluate
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

WINDOWS = 6
"""With the recorder and without, in turns."""
SETTLE_S = 10.0
RECORDER_MIB = 8
MODULE = "__import__('sys').modules['actors._base.recording'].__dict__"
OFF = f"{MODULE}.update(kept={MODULE}.get('kept') or {MODULE}['current'], current=None)"
ON = f"{MODULE}.update(current={MODULE}.get('kept') or {MODULE}['current'])"
"""Expressions for an actor: the same process with the recorder and without, since two processes differ by more."""


class Cost(NamedTuple):
    """CPU seconds of all processes of an agent, with its recorder and without, in spans of the same length."""

    with_s: float
    without_s: float
    ratios: list[float]
    """Of each pair of spans."""

    @property
    def ratio(self) -> float:
        """Of the sums."""
        return round(self.with_s / self.without_s, 4)


def running(agent: Agent, pods: int) -> bool:
    found = agent.pods().values()
    return sum(one["status"].get("phase") == "Running" for one in found) == pods


def spent(agent: Agent) -> float:
    """CPU seconds of all threads of the agent: in ns, where the clock ticks of /proc/PID/stat are too coarse."""
    files = (file for row in agent.rows().values() for file in Path(f"/proc/{row['pid']}/task").glob("*/schedstat"))
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def switch(client: Client, names: Sequence[str], *, on: bool) -> None:
    """Let these actors record, or not."""
    for name in names:
        done = client.ask(name, Evaluate(expression=ON if on else OFF), 10.0)
        now = client.ask(name, Evaluate(expression=f"{MODULE}['current'] is not None"), 10.0)
        if now.text != str(on):
            raise RuntimeError(f"cannot switch the recorder of {name}: {done.error or now}")


def size_on_disk(agent: Agent) -> int:
    """Bytes of the recordings."""
    return sum(path.stat().st_blocks * 512 for path in recording.files(str(agent.run_dir)))


def compared(pods: int, seconds: float) -> tuple[Cost, int]:
    """The cost while pods are probed each second, and bytes on disk."""
    check = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    used: dict[bool, list[float]] = {True: [], False: []}
    with embedded_agent(f"--recorder-size={RECORDER_MIB}") as agent, Client(agent.run_dir, role="debug") as client:
        for number in range(pods):
            one = container("c", "sleep 1000") | {"readinessProbe": check}
            agent.write(f"web{number}", pod(f"web{number}", one))
        wait_for(lambda: running(agent, pods), 60 + 10 * pods, "all pods run")
        time.sleep(SETTLE_S)  # the wake of the start
        names = sorted(agent.rows().keys() - {"supervisor", "forkserver"})
        for _ in range(WINDOWS):
            for on in (True, False):
                switch(client, names, on=on)
                before = spent(agent)
                time.sleep(seconds / WINDOWS)
                used[on].append(spent(agent) - before)
        ratios = [round(one / other, 3) for one, other in zip(used[True], used[False], strict=True)]
        return Cost(sum(used[True]), sum(used[False]), ratios), size_on_disk(agent)


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    cost, size = compared(pods, seconds)
    print(json.dumps({"pods": pods, "ratio": cost.ratio, **cost._asdict(), "bytes": size}))


if __name__ == "__main__":
    main()
