"""The embedded runtime next to containerd: the same CRI calls for the same pods, in turn, in one run.

`python -m tests.bench.runtimes [--pods 50] [--rounds 3] [--agent] [--json]`. The embedded runtime has
its pods once in containerd's CNI network, and once on its own default bridge. With --agent a whole agent also starts
and ends as many pods on each.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proto.common.machine import procfs
from tests.bench import floor
from tests.bench.harness import agent
from tests.bench.reporting.table import print_table
from tests.containerd import ContainerdInstance, missing_requirements
from tests.runtime.instance import EmbeddedInstance

CONTAINERD, WITH_CNI, OWN_BRIDGE = "containerd", "embedded, CNI", "embedded, own bridge"


@dataclass
class Compared:
    """Of one runtime; a figure for each round."""

    name: str
    start_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    agent_start_s: list[float] = field(default_factory=list)
    """Of a whole agent, until all are Ready."""
    agent_ratio: float | None = None
    start_ratio: float = 1.0
    """Median of the rounds' times by containerd's of the same round."""
    stop_ratio: float = 1.0
    monitor_mb_per_container: float | None = None
    """PSS of the monitor, by the containers that it watches."""


def compare(count: int, width: int, rounds: int, *, agents: bool) -> list[Compared]:
    """`count` pods up and down, `width` at a time, on each runtime in turn; with `agents` also by a whole agent."""
    with ExitStack() as stack:
        runtimes: dict[str, Any] = {
            CONTAINERD: stack.enter_context(ContainerdInstance(_directory())),
            WITH_CNI: stack.enter_context(EmbeddedInstance(_directory())),
            OWN_BRIDGE: stack.enter_context(EmbeddedInstance(_directory(), cni=False)),
        }
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nvbench-")))
        found = {name: Compared(name) for name in runtimes}
        for name, runtime in runtimes.items():
            floor.measure(runtime.cri, 2, 2, logs / name)  # the first pods are slower
        for number in range(rounds):
            for name, runtime in runtimes.items():
                print(f"round {number + 1}: {name} ...", file=sys.stderr, flush=True)
                _measure(found[name], runtime, count, width, logs / name)
                if agents:
                    found[name].agent_start_s.append(agent.measure(runtime.cri, logs, count).start_s)
    base = found[CONTAINERD]
    for one in found.values():
        one.start_ratio = _median_ratio(one.start_s, base.start_s)
        one.stop_ratio = _median_ratio(one.stop_s, base.stop_s)
        one.agent_ratio = _median_ratio(one.agent_start_s, base.agent_start_s) if agents else None
    return list(found.values())


def _measure(into: Compared, runtime: Any, count: int, width: int, logs: Path) -> None:
    def with_all_running() -> None:
        if into.name != CONTAINERD:
            monitors = sum(procfs.pss_kib(pid) for pid in runtime.monitor_pids())
            into.monitor_mb_per_container = monitors * 1024 / 1e6 / count

    measured = floor.measure(runtime.cri, count, width, logs, with_all_running)
    into.start_s.append(measured.start_s)
    into.stop_s.append(measured.stop_s)


def _directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="nvbench-"))


def _median_ratio(ours: Sequence[float], base: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, base, strict=True))


def main() -> int:
    """Print what each takes; 1 when the machine lacks what it needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.runtimes", description=__doc__)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--width", type=int, default=floor.WIDTH, help="pods at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--agent", action="store_true", help="measure a whole agent on each, too")
    parser.add_argument("--json", action="store_true", help="print one JSON list; progress goes to stderr")
    options = parser.parse_args()
    if problem := missing_requirements():
        print(problem, file=sys.stderr)
        return 1
    found = compare(options.pods, options.width, options.rounds, agents=options.agent)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return 0
    print(f"\nSeconds for {options.pods} pods, {options.width} at a time: medians of {options.rounds} rounds in turn.")
    headers = ("RUNTIME", "START", "RATIO", "GONE", "RATIO", "AGENT START", "RATIO", "MONITOR MB A CONTAINER")
    print_table(headers, [_row(one) for one in found])
    return 0


def _row(one: Compared) -> Sequence[object]:
    median = statistics.median
    up, down = (median(one.start_s), one.start_ratio), (median(one.stop_s), one.stop_ratio)
    whole = (median(one.agent_start_s) if one.agent_start_s else None, one.agent_ratio)
    return (one.name, *up, *down, *whole, one.monitor_mb_per_container)


if __name__ == "__main__":
    sys.exit(main())
