"""Measures the agent next to floors in the same run, and prints it: `make bench`.

On a private containerd `pods` starts and ends pods of manifests, beside the bare CRI calls; with the last number of
pods it has idle, exits, and restarts of each actor, quiet and under load. `service` has an agent's start to its first
pod, its idle without pods, and a takeover of pods. `streams` has logs, exec and port-forward, beside the runtime's own.
`cluster` has pods and ConfigMaps of a real API server. `bus` asks an actor, beside bare pyzmq with msgpack. On a
runtime that does nothing, `scale` has up to 1,000 pods, and `probes` 110 probes a second. `--keep` adds the medians to
the history that later runs are compared with, and draws it (etc/bench).
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.bench.parts import PARTS, measure, numbers, progress
from tests.bench.reporting import history
from tests.bench.reporting.report import Report
from tests.bench.reporting.table import print_table

HISTORY = history.DIRECTORY / "history.jsonl"
MOST_PODS = 250
"""Of one private containerd, whose pods have a /24 (tests/containerd/host/network.py)."""
OPTIONAL = "cluster"
"""Left out, and said so, where the machine lacks a control plane and no option asks for the part."""


def main() -> int:
    """Run it; 1 when the machine lacks what it needs."""
    options = parse()
    parts = options.parts or list(PARTS)
    missing = {name: problem for name in parts if (problem := PARTS[name].missing())}
    if not options.parts and list(missing) == [OPTIONAL]:
        progress(f"without the part {OPTIONAL}: {missing.pop(OPTIONAL)}")
        parts.remove(OPTIONAL)
    if missing:
        print("\n".join(dict.fromkeys(missing.values())), file=sys.stderr)
        return 1
    found, reports = measure(parts, options)
    _show(options, found, reports)
    if options.keep:
        history.append(HISTORY, history.entry(_commit(), time.strftime("%Y-%m-%d"), found))
        (history.DIRECTORY / "figures.svg").write_text(history.picture(history.load(HISTORY)))
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options. Exits with a message for wrong ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--parts", type=_names, default="", help=f"of {', '.join(PARTS)}; all that the machine can run by default"
    )
    parser.add_argument("--rounds", type=int, default=5, help="each figure's values")
    parser.add_argument(
        "--pods",
        type=numbers,
        default="1,10,50,100",
        help="numbers of pods of pods, service and cluster, the last of them with all figures. At most 250, which take "
        "four minutes more for each part and round, so ask for them: 1,10,50,100,250",
    )
    parser.add_argument(
        "--scale-pods", type=numbers, default="10,50,100,250,500,1000", help="numbers of pods of the part scale"
    )
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object; progress goes to stderr")
    parser.add_argument("--keep", action="store_true", help="add the medians to etc/bench")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.parts) - PARTS.keys()):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if max(options.pods) > MOST_PODS:
        parser.error(f"cannot run {max(options.pods)} pods: a private containerd has addresses for {MOST_PODS}")
    return options


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _show(options: argparse.Namespace, found: dict[str, list[float]], reports: list[Report]) -> None:
    if options.json:
        print(json.dumps({"figures": found, "reports": [report.plain() for report in reports]}, indent=2))
        return
    for report in reports[-1:]:
        report.show()
    last = next(reversed(history.load(HISTORY)), None)
    print(f"\nMedians of {options.rounds} rounds" + (f", beside those of {last.commit}" if last else ""))
    print_table(("FIGURE", "MEDIAN", "P99", "BEFORE", "CHANGE"), list(history.compared(found, last)))


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
