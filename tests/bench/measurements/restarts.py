"""The time from SIGKILL of an actor to its next incarnation in service: each actor, quiet and on a busy machine.

The floor is a bare parent, which sees a child's end by its pidfd and forks the next one: `python -m
tests.bench.measurements.restarts`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from proto.agent.supervisor import Started
from supervisor.sockets.client import Client
from tests.bench.harness.agent import Agent
from tests.bench.harness.following import Seen, drain, follow, milliseconds, next_of

QUIET_ROUNDS, LOADED_ROUNDS = 5, 4
"""Restarts of each actor. Past ten within 30 s the supervisor calls an actor degraded (ChildSpec.max_restarts)."""
ROUND_S = 1.5
"""An actor that was in service for a second is restarted at once again."""
BARE = 20
Times = dict[str, list[float | None]]
"""By actor: milliseconds from SIGKILL to the supervisor's word that the next one is in service; None past 5 s."""


@dataclass(frozen=True)
class Bare:
    """Milliseconds of the bare parent, for each kill."""

    seen_ms: list[float]
    """Until the pidfd is readable."""
    forked_ms: list[float]
    """Until the next child has said a byte."""


@dataclass(frozen=True)
class Restarts:
    """Restarts of each actor, and of the bare parent's child."""

    quiet_ms: Times = field(default_factory=dict)
    loaded_ms: Times = field(default_factory=dict)
    """While as many processes are busy as the machine has CPUs."""
    bare: Bare = field(default_factory=lambda: Bare([], []))
    bare_loaded: Bare = field(default_factory=lambda: Bare([], []))


def measure(agent: Agent, quiet_rounds: int = QUIET_ROUNDS, loaded_rounds: int = LOADED_ROUNDS) -> Restarts:
    """Kill every actor in turn, again and again."""
    seen = follow(agent, _starts)
    bare, quiet = _bare(), _rounds(agent, seen, quiet_rounds)
    with busy():
        return Restarts(quiet, _rounds(agent, seen, loaded_rounds), bare, _bare())


@contextlib.contextmanager
def busy(count: int = os.cpu_count() or 1) -> Iterator[None]:
    """Processes that only compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _starts(client: Client, seen: Seen) -> None:
    for event in client.events():
        if isinstance(event, Started):
            seen.put((time.monotonic(), event.name))


def _rounds(agent: Agent, seen: Seen, rounds: int) -> Times:
    found: Times = {row.name: [] for row in agent.client.actors()[2:]}
    for _ in range(rounds):
        began = time.monotonic()
        for name, figures in found.items():
            figures.append(_restart(agent, name, seen))
        time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))
    return found


def _restart(agent: Agent, name: str, seen: Seen) -> float | None:
    pid = next(row.pid for row in agent.client.actors() if row.name == name)
    drain(seen)
    killed = time.monotonic()
    if pid == 0:
        return None
    os.kill(pid, signal.SIGKILL)
    return milliseconds(killed, next_of(seen, name, killed))


# The floor


def _bare() -> Bare:
    """The floor in a process of its own: one with threads must not fork."""
    command = [sys.executable, "-P", "-m", "tests.bench.measurements.restarts", "--kills", str(BARE)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return Bare(**json.loads(told))


def bare(kills: int) -> Bare:
    """Kill and fork children that do nothing."""
    found, child = Bare([], []), _forked()
    for _ in range(kills):
        pidfd, killed = os.pidfd_open(child), time.monotonic()
        os.kill(child, signal.SIGKILL)
        select.select([pidfd], [], [])
        found.seen_ms.append(1000 * (time.monotonic() - killed))
        os.close(pidfd)
        os.waitpid(child, 0)
        child = _forked()
        found.forked_ms.append(1000 * (time.monotonic() - killed))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


def _forked() -> int:
    """A child that has said that it runs."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, b"x")
        while True:
            signal.pause()
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    return child


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the floor as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.measurements.restarts", description=__doc__)
    parser.add_argument("--kills", type=int, default=BARE)
    found = bare(parser.parse_args(arguments).kills)
    print(json.dumps({"seen_ms": found.seen_ms, "forked_ms": found.forked_ms}))


if __name__ == "__main__":
    main()
