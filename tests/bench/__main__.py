"""Measures the agent next to floors in the same run, and prints it: `make bench`.

`pods` starts and ends pods on a private containerd, beside the bare CRI calls. `bus` asks an actor, beside bare pyzmq
with msgpack. On a runtime that does nothing, `scale` has up to 1,000 pods, and `probes` 110 probes a second. `--keep`
adds the medians to the history that later runs are compared with, and draws it (etc/bench).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from actors._cri.client import Cri
from tests.bench import agent, bus, figures, floor, history, latency, probes, scale
from tests.bench.report import Report, Step
from tests.bench.table import print_table
from tests.containerd import ContainerdInstance, missing_requirements

HISTORY = history.DIRECTORY / "history.jsonl"
PARTS = ("pods", "bus", "scale", "probes")


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="each figure's values")
    parser.add_argument("--pods", default="1,10,50,100", help="numbers of pods, the last of them with all figures")
    parser.add_argument("--scale-pods", default="10,50,100,250,500,1000", help="numbers of pods of the part scale")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object; progress goes to stderr")
    parser.add_argument("--keep", action="store_true", help="add the medians to etc/bench")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if "pods" in parts and (problem := missing_requirements()):
        print(problem, file=sys.stderr)
        return 1
    found, reports = measure(parts, options)
    last = next(reversed(history.load(HISTORY)), None)
    if options.json:
        print(json.dumps({"figures": found, "reports": [report.plain() for report in reports]}, indent=2))
    else:
        for report in reports[-1:]:
            report.show()
        print(f"\nMedians of {options.rounds} rounds" + (f", beside those of {last.commit}" if last else ""))
        print_table(("FIGURE", "MEDIAN", "P99", "BEFORE", "CHANGE"), list(history.compared(found, last)))
    if options.keep:
        history.append(HISTORY, history.entry(_commit(), time.strftime("%Y-%m-%d"), found))
        (history.DIRECTORY / "figures.svg").write_text(history.picture(history.load(HISTORY)))
    return 0


def measure(parts: Collection[str], options: argparse.Namespace) -> tuple[dict[str, list[float]], list[Report]]:
    """The figures of the parts by name, and the reports of the part `pods`."""
    found: dict[str, list[float]] = {}
    reports: list[Report] = []
    for number in range(options.rounds if "pods" in parts else 0):
        _progress(f"round {number + 1} of {options.rounds}")
        reports.append(run(_numbers(options.pods), options.idle_seconds))
    found |= figures.of_pods(reports)
    if "bus" in parts:
        _progress("two actors, beside bare pyzmq with msgpack ...")
        found |= figures.of_bus(bus.measure(options.rounds))
    if "scale" in parts:
        _progress("pods on a runtime that does nothing ...")
        found |= figures.of_scale([scale.measure(_numbers(options.scale_pods)) for _ in range(options.rounds)])
    if "probes" in parts:
        _progress("probes each second on a runtime that does nothing ...")
        handlers: tuple[probes.Handler, ...] = ("http", "exec")
        found |= figures.of_probes(probes.measure(one) for _ in range(options.rounds) for one in handlers)
    return found, reports


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


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
