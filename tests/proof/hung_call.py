"""The runtime's calls for one pod hang: the node stays Ready, and other pods start in their usual time.

NODEVISOR_HUNG_S is how long they hang. Pods start one after the other in four groups: before, at the begin and at the
end of that time, and afterwards. The two outer groups tell the usual times.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from typing import Any

from proto.agent.faults import Fault
from proto.agent.supervisor import EndFaults, InjectFault
from tests.agent.agent import is_ready, pod
from tests.agent.faults import words_of
from tests.agent.joined import PODS as PODS_PATH
from tests.agent.joined import Joined, Repeated, embedded_node, node_ready
from tests.harness import wait_for

HUNG_S = float(os.environ.get("NODEVISOR_HUNG_S", "10"))
FULL = HUNG_S >= 60
PODS = 20
MOST_RATIO = 1.2 if FULL else 3.0
"""Of the median times. The short run may share the machine with others."""
START_S = 60.0
HANGS = "victim"


def rows(pods: int = PODS) -> list[dict[str, Any]]:
    """One row."""
    with embedded_node() as one:
        try:
            return [run(one, pods)]
        finally:
            one.eye.client.ask("supervisor", EndFaults(), 10.0)
            for name in one.stored():
                with contextlib.suppress(Exception):
                    one.delete(name, 1)
            wait_for(lambda: not one.stored(), START_S, f"every pod goes; log: {one.agent.log}")


def run(one: Joined, pods: int) -> dict[str, Any]:
    """The usual times, the hung call, and the times meanwhile."""
    start(one, HANGS)
    start(one, "warm-up")
    usual = group(one, "before", pods // 2)
    unready: list[float] = []
    hang(one)
    began = time.monotonic()
    watch = Repeated(lambda: None if node_ready(one.cp, one.node) else unready.append(time.monotonic()), 0.5)
    hung = group(one, "soon", pods // 2)
    time.sleep(max(0.0, began + HUNG_S - time.monotonic()))  # the calls hang for so long
    hung += group(one, "late", pods - pods // 2)
    kept = HANGS in one.stored()
    watch.close()
    one.eye.client.ask("supervisor", EndFaults(), 10.0)
    usual += group(one, "after", pods - pods // 2)
    gone = bool(wait_for(lambda: HANGS not in one.stored(), START_S, f"{HANGS} ends; log: {one.agent.log}"))
    ratio = statistics.median(hung) / statistics.median(usual)
    return {
        "row": "hung call",
        "seconds": int(HUNG_S),
        "pods": pods,
        "usual_s": statistics.median(usual),
        "meanwhile_s": statistics.median(hung),
        "ratio": ratio,
        "not Ready": len(unready),
        "passed": ratio <= MOST_RATIO and not unready and kept and gone,
    }


def hang(one: Joined) -> None:
    """Let every call for the pod hang, then delete it."""
    words = words_of(one.agent, one.eye.pods()[HANGS])
    one.eye.client.ask("supervisor", InjectFault(fault=Fault(kind="cri", words=words), duration_s=HUNG_S + 600), 10.0)
    one.delete(HANGS, 1)


def group(one: Joined, name: str, count: int) -> list[float]:
    """The times of so many pods. A first one, which may wait for a helper process to start, is left out."""
    return [start(one, f"{name}-{number}") for number in range(count + 1)][1:]


def start(one: Joined, name: str) -> float:
    """Create a pod; seconds until it is Ready."""
    began = time.monotonic()
    one.create(pod(name))
    wait_for(lambda: is_ready(one.cp.get(f"{PODS_PATH}/{name}") or {}), START_S, f"{name}; log: {one.agent.log}")
    return time.monotonic() - began
