"""Measures how late probes are, and their cost: pods with a probe each second, on a runtime that does nothing.

`python -m tests.bench.measurements.probes --pods 110 --seconds 30`. Probes by http go to a server here; those by exec
are noted by the runtime. A probe's schedule is its first arrivals' grid of a period, moved so that its most punctual
probe is on it.
"""

from __future__ import annotations

import argparse
import json
import math
import socketserver
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.bench.harness import agent, usage
from tests.bench.harness import pods as bench_pods
from tests.bench.harness.null_runtime import null_runtime
from tests.bench.measurements.latency import percentile
from tests.bench.reporting.table import print_table

PODS = 110
SECONDS = 30.0
PERIOD_S = 1.0
EARLY = 0.25
SETTLE_S = 5.0
"""After the start of the last pod."""
Handler = Literal["http", "exec"]
Arrivals = dict[str, list[float]]
"""By pod: monotonic seconds of its probes."""


@dataclass
class Probing:
    """One handler's probes."""

    handler: Handler
    pods: int
    late_ms: list[float] = field(default_factory=list)
    """Of each probe."""
    core_percent: float = 0.0
    """CPU time of all the agent's processes, of one core."""
    missed: int = 0
    """Probes of the schedule that did not arrive."""


def lateness_ms(arrivals: Iterable[Sequence[float]], period_s: float = PERIOD_S) -> list[float]:
    """Of each probe, by its own pod's grid."""
    found = []
    for times in arrivals:
        offsets = [at - number * period_s for number, at in _numbered(times, period_s)]
        found += [1000 * (offset - min(offsets)) for offset in offsets]
    return found


def missed(arrivals: Iterable[Sequence[float]], period_s: float = PERIOD_S) -> int:
    """Periods between the first and last probe of a pod without a probe."""
    return sum(list(_numbered(times, period_s))[-1][0] + 1 - len(times) for times in arrivals if times)


def _numbered(times: Sequence[float], period_s: float) -> Iterable[tuple[int, float]]:
    """Each arrival with its period's number. Early by more than EARLY of a period is late in the period before."""
    number = -1
    for at in times:
        number = max(number + 1, math.floor((at - times[0]) / period_s + EARLY))
        yield number, at


class HttpTarget(socketserver.ThreadingTCPServer):
    """Answers 200 at once, and notes when which path was asked for."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        self.arrivals: Arrivals = defaultdict(list)
        super().__init__(("127.0.0.1", 0), _Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answer(socketserver.StreamRequestHandler):
    server: HttpTarget

    def handle(self) -> None:
        at = time.monotonic()
        request = self.rfile.readline(4096)
        if not request:
            return  # the prober ended, with the agent
        path = request.split(b" ")[1].decode().strip("/")
        while self.rfile.readline(4096).strip():
            pass
        self.server.arrivals[path].append(at)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def measure(handler: Handler, count: int = PODS, seconds: float = SECONDS) -> Probing:
    """Start the pods, and look at their probes for a while."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nvbench-")))
        target = stack.enter_context(HttpTarget())
        stack.callback(target.shutdown)
        execs = directory / "execs"
        cri = stack.enter_context(null_runtime(directory, execs))
        running = stack.enter_context(agent.Agent(cri.endpoint, directory))

        def probe(name: str) -> dict[str, Any]:
            if handler == "exec":
                return {"exec": {"command": ["probe", name]}}
            return {"httpGet": {"host": "127.0.0.1", "port": target.port, "path": f"/{name}"}}

        running.add(count, lambda name: probed(name, probe(name)))
        time.sleep(SETTLE_S)  # the wake of the start
        before, began = usage.cpu_s(running.process.pid), time.monotonic()
        time.sleep(seconds)
        used = usage.difference(usage.cpu_s(running.process.pid), before)
        ended = time.monotonic()
        arrivals = dict(target.arrivals) if handler == "http" else _read(execs)
        inside = [[at for at in times if began < at < ended] for times in list(arrivals.values())]
        running.remove_all(cri)
    if len(inside) != count:
        raise RuntimeError(f"{len(inside)} of {count} pods were probed")
    core = 100 * sum(used.values()) / (ended - began)
    return Probing(handler, count, lateness_ms(inside), round(core, 2), missed(inside))


def probed(name: str, probe: dict[str, Any]) -> str:
    """The manifest of a pod with this readiness probe each second."""
    manifest = json.loads(bench_pods.manifest(name))
    manifest["spec"]["containers"][0]["readinessProbe"] = probe | {"periodSeconds": int(PERIOD_S), "timeoutSeconds": 5}
    return json.dumps(manifest)


def _read(execs: Path) -> Arrivals:
    found: Arrivals = defaultdict(list)
    for line in execs.read_text().splitlines():
        at, name = line.split()
        found[name].append(float(at))
    return found


def show(found: Sequence[Probing]) -> None:
    """Print a table."""
    rows = [
        (
            one.handler,
            one.pods,
            len(one.late_ms),
            one.missed,
            percentile(one.late_ms, 0.5),
            percentile(one.late_ms, 0.99),
            one.core_percent,
        )
        for one in found
    ]
    print_table(("PROBES", "PODS", "SEEN", "MISSED", "LATE MS", "P99", "% OF A CORE"), rows)


def main() -> None:
    """Print how late the probes are."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.measurements.probes", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    show([measure(handler, options.pods, options.seconds) for handler in ("http", "exec")])


if __name__ == "__main__":
    main()
