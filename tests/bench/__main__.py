"""Runs the benchmark on a private containerd and prints it: `python -m tests.bench [--pods 1,10,50,100] [--json]`."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from actors._cri.client import Cri
from tests.bench import agent, floor, latency
from tests.bench.report import Report, Step
from tests.containerd import ContainerdInstance, missing_requirements


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--pods", default="1,10,50,100", help="numbers of pods, the last of them with all figures")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object; progress goes to stderr")
    options = parser.parse_args()
    if problem := missing_requirements():
        print(problem, file=sys.stderr)
        return 1
    report = run([int(part) for part in options.pods.split(",")], options.idle_seconds)
    if options.json:
        print(json.dumps(report.plain(), indent=2))
    else:
        report.show()
    return 0


def run(counts: list[int], idle_seconds: float) -> Report:
    """Measure each number of pods, floor and agent in turn, since a machine's speed changes over minutes."""
    directory = Path(tempfile.mkdtemp(prefix="nvbench-"))
    with ContainerdInstance(directory) as containerd:
        logs = directory / "floor-logs"
        floor.measure(containerd.cri, 2, 2, logs)  # the first pods of a containerd are slower
        report = Report()
        for number, count in enumerate(counts, 1):
            report.steps.append(
                _step(containerd.cri, directory, count, report if number == len(counts) else None, idle_seconds)
            )
    return report


def _step(cri: Cri, directory: Path, count: int, last: Report | None, idle_seconds: float) -> Step:
    def with_all_running(running: agent.Agent) -> None:
        if last is not None:
            _progress(f"{count} pods: idle, exits, restarts ...")
            last.latencies = latency.measure(running, cri, idle_seconds)

    logs = directory / "floor-logs"
    _progress(f"{count} pods: bare CRI ...")
    before = floor.measure(cri, count, floor.WIDTH, logs)
    _progress(f"{count} pods: agent ...")
    ours = agent.measure(cri, directory, count, with_all_running)
    _progress(f"{count} pods: bare CRI again ...")
    after = floor.measure(cri, count, floor.WIDTH, logs)
    return Step([before, after], ours)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
