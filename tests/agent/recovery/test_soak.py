"""Pods that start and stop by the hundred leave nothing behind, on the node and in our processes.

60 in the ordinary run; `NODEVISOR_SOAK=1000` for that many, with a line for each hundred.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from proto.agent.settings import Settings
from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.agent.faults import Eye, expect_nothing
from tests.agent.recovery import residue
from tests.harness import wait_for

PODS = int(os.environ.get("NODEVISOR_SOAK", "60"))
AT_ONCE = 10
WARM_UP = 20
"""Pods after which everything that is loaded or opened once has been."""

pytestmark = pytest.mark.timeout(max(300, PODS * 4))

MORE_FDS, MORE_THREADS, MORE_TASKS, MORE_TIMERS = 3, 3, 4, 8
"""Allowed variation of a process between two moments."""
MORE_KIB = {"events": 16 * 1024}
"""Allowed growth by process; 8 MiB for the others.

Python's heap and glibc's arenas reach their size after a while. The events' store and caches fill with some
hundred pods. A leak of 8 KiB per pod shows with a thousand pods.
"""

QUICK = "trap exit TERM; sleep 100000 & wait"


def manifest(number: int) -> dict[str, Any]:
    """Small pods of every kind in turn."""
    name, first = f"soak-{number}", container("c", QUICK)
    match number % 6:
        case 0:
            return pod(name, first)
        case 1:
            mount = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}
            volume = {"name": "m", "emptyDir": {"medium": "Memory"}}
            return pod(name, container("c", QUICK, **mount), volumes=[volume])
        case 2:
            return pod(name, first, initContainers=[container("i", "exit 0")])
        case 3:
            return pod(name, first, container("d", QUICK))
        case 4:
            probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
            return pod(name, container("c", QUICK, readinessProbe=probe))
        case _:
            requests = {"requests": {"cpu": "1m", "memory": "1Mi"}}
            return pod(name, container("c", QUICK, resources=requests), hostNetwork=True)


def start(api: ApiSource, numbers: range) -> list[str]:
    names = [api.add(manifest(number)).metadata.name for number in numbers]
    api.wait_ready(*names, timeout_s=120)
    return names


def stop(api: ApiSource, names: list[str]) -> None:
    for name in names:
        api.delete(name, 1)
    api.wait_gone(*names, timeout_s=120)


def grown(before: dict[str, residue.Held], after: dict[str, residue.Held]) -> list[str]:
    found = []
    for name, held in after.items():
        was = before[name]
        if held.pid != was.pid:
            found.append(f"{name} has started anew")
        elif (
            held.fds > was.fds + MORE_FDS
            or held.threads > was.threads + MORE_THREADS
            or held.private_kib > was.private_kib + MORE_KIB.get(name, 8 * 1024)
            or held.tasks > was.tasks + MORE_TASKS
            or held.timers > was.timers + MORE_TIMERS
        ):
            found.append(f"{name}: {was} before, {held} now")
    return found


def all_have_had_a_heartbeat(eye: Eye) -> bool:
    rows = eye.actors().values()
    return bool(rows) and all(row.uptime_s > Settings().heartbeat_period_s + 1.0 for row in rows if row.pid)


def expect(problems: Callable[[], list[str]]) -> None:
    """None, after a while: a shim takes a moment to leave, and a thread that is not needed any more."""
    found: list[str] = []

    def none() -> bool:
        nonlocal found
        found = problems()
        return not found

    try:
        wait_for(none, 60)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *found])) from None


def say(capsys: pytest.CaptureFixture[str], *lines: str) -> None:
    """Progress of a long run."""
    if PODS >= 200:
        with capsys.disabled():
            print("", *lines, sep="\n", end="", flush=True)


def test_pods_that_started_and_stopped_leave_nothing(containerd, capsys):
    with ExitStack() as stack:
        agent = stack.enter_context(closing(Agent(containerd, api=True)))
        agent.start()
        api = stack.enter_context(closing(ApiSource(agent)))
        eye = Eye(agent)
        stack.enter_context(closing(eye.client))
        empty = residue.of_the_node(eye)
        before: dict[str, residue.Held] = {}
        began = time.monotonic()
        for first in range(0, PODS, AT_ONCE):
            names = start(api, range(first, min(PODS, first + AT_ONCE)))
            if first == 0:
                assert set(residue.of_the_node(eye) - empty) == residue.KINDS, "everything there is to find is found"
            stop(api, names)
            done = first + AT_ONCE
            if done == WARM_UP:
                expect_nothing(eye, 60)
                # The supervisor connects to each actor with the first heartbeat: two descriptors that stay.
                wait_for(lambda: all_have_had_a_heartbeat(eye), 60)
                before = residue.of_the_actors(eye)
            if done % 100 == 0:
                total = sum(held.private_kib for held in residue.of_the_actors(eye).values())
                say(capsys, f"{done} pods, {time.monotonic() - began:.0f} s, {total} KiB private")
        expect_nothing(eye, 60)
        expect(lambda: [f"{count} {kind}" for kind, count in (residue.of_the_node(eye) - empty).items()])
        expect(lambda: grown(before, residue.of_the_actors(eye)))
        after = residue.of_the_actors(eye)
        say(capsys, *(f"{name}: {before[name]} after {WARM_UP}; {held} now" for name, held in after.items()))
