"""The agent's own cost for a pod at several numbers of pods, on a runtime that does nothing.

`python -m tests.bench.measurements.scale --pods 50,250,1000`. CPU time includes the agent alone, so the figures show
whether a step costs more with each pod that is there already.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.harness import agent
from tests.bench.harness.null_runtime import null_runtime
from tests.bench.reporting.table import print_table

COUNTS = (10, 50, 100, 250, 500, 1000)
BASE = 50
"""Pods that the cost of many is compared with."""


@dataclass(frozen=True)
class Cost:
    """One number of pods up and down."""

    pods: int
    start_s: float
    stop_s: float
    cpu_ms: float
    """CPU time of all processes for one pod's start and stop."""
    pss_mb: float
    """With all pods running."""


def measure(counts: Sequence[int] = COUNTS) -> list[Cost]:
    """Measure each number of pods, with an agent of its own."""
    with tempfile.TemporaryDirectory(prefix="nvbench-") as name:
        directory = Path(name)
        with null_runtime(directory) as cri:
            runs = [agent.measure(cri, directory, count) for count in counts]
    return [
        Cost(run.pods, run.start_s, run.stop_s, 1000 * (run.cpu_start_s + run.cpu_stop_s) / run.pods, run.pss_mb)
        for run in runs
    ]


def growth(costs: Sequence[Cost]) -> tuple[float, float]:
    """CPU for a pod at the most pods by that at BASE (or the fewest), and MB of PSS for each pod in between."""
    first = next((cost for cost in costs if cost.pods == BASE), costs[0])
    last = costs[-1]
    further = last.pods - first.pods
    return last.cpu_ms / first.cpu_ms, (last.pss_mb - first.pss_mb) / further if further else 0.0


def show(costs: Sequence[Cost]) -> None:
    """Print a table."""
    rows = [(cost.pods, cost.start_s, cost.stop_s, cost.cpu_ms, cost.pss_mb) for cost in costs]
    print_table(("PODS", "UP S", "GONE S", "CPU MS A POD", "PSS MB"), rows)
    cpu, memory_mb = growth(costs)
    print(f"CPU for a pod {cpu:.2f} times, {memory_mb:.3f} MB for each further pod.")


def main() -> None:
    """Print what a pod costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.measurements.scale", description=__doc__)
    parser.add_argument("--pods", default=",".join(map(str, COUNTS)))
    options = parser.parse_args()
    show(measure([int(part) for part in options.pods.split(",")]))


if __name__ == "__main__":
    main()
