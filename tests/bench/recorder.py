"""The cost of the flight recorder: `python -m tests.bench.recorder [PODS] [SECONDS]`.

Two agents with the same pods, one after the other, several times: with the recorder and without. Printed are the CPU
time of all processes of the agent in the same span, and the bytes that the recordings take.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from proto.agent import recording
from tests.agent.agent import Agent, container, pod
from tests.agent.embedded import embedded_agent
from tests.harness import wait_for

ROUNDS = 3


def running(agent: Agent, pods: int) -> bool:
    found = agent.pods().values()
    return sum(one["status"].get("phase") == "Running" for one in found) == pods


def spent(agent: Agent) -> float:
    """CPU seconds of all threads of the agent: in ns, where the clock ticks of /proc/PID/stat are too coarse."""
    files = (file for row in agent.rows().values() for file in Path(f"/proc/{row['pid']}/task").glob("*/schedstat"))
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def measure(size_mib: int, pods: int, seconds: float) -> tuple[float, float, int]:
    """CPU seconds until all pods run, CPU seconds after that, and bytes on disk."""
    check = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    with embedded_agent(f"--recorder-size={size_mib}") as agent:
        began = spent(agent)
        for number in range(pods):
            one = container("c", "sleep 1000") | {"readinessProbe": check}
            agent.write(f"web{number}", pod(f"web{number}", one))
        wait_for(lambda: running(agent, pods), 60 + 10 * pods, "all pods run")
        started = spent(agent)
        time.sleep(seconds)
        ended = spent(agent)
        size = sum(path.stat().st_blocks * 512 for path in recording.files(str(agent.run_dir)))
        return started - began, ended - started, size


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    rounds = [(measure(8, pods, seconds), measure(0, pods, seconds)) for _ in range(ROUNDS)]
    for number, what in enumerate(("start", "steady")):
        with_it, without = (statistics.median(one[side][number] for one in rounds) for side in (0, 1))
        ratio = round(with_it / without, 4)
        print(json.dumps({"phase": what, "pods": pods, "with": with_it, "without": without, "ratio": ratio}))
    print(json.dumps({"bytes": max(one[0][2] for one in rounds)}))


if __name__ == "__main__":
    main()
