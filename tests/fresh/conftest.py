"""The fresh machine with and without a set-up, made once for all tests of this folder."""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fresh import steps
from tests.fresh.downloads.rootfs import USER, rootfs
from tests.fresh.downloads.wheels import wheels
from tests.fresh.machine import HOMES, Machine
from tests.fresh.terminal import Terminal
from tests.fresh.traces import Traces

READY = re.compile(r"All pods are ready or completed after ([0-9.]+) s\.")
READY_S = 15.0
"""Limit from the end of the set-up, on a quiet machine."""
LOAD = 4.0
"""The factor on every limit of time: a CI machine runs other tests meanwhile."""
SETUP_S = 60.0 * LOAD
REAPED_S = 5.0
FIRST_RUN = pytest.mark.xdist_group("fresh-first-run")
"""On tests that request `first_run`: one worker makes it for all of them."""


@dataclass
class FirstRun:
    """`make run` in a new clone, from its first line until nothing is left."""

    user: str
    clone: str
    said: str
    """All that it wrote on a terminal."""
    own_ready_s: float
    """Wait until all samples were ready or completed, by its own words."""
    ready_s: float
    """The same, from the end of the set-up, by our clock."""
    code: int
    """Exit code after Ctrl-C."""
    left: dict[str, list[str]] = field(default_factory=dict)
    """The things that are there after it and were not before, by kind.
    The set-up's files are in the clone and do not count."""
    layers: list[Path] = field(default_factory=list)
    """The machine's disk after it, for further machines."""


@pytest.fixture(scope="session")
def shared() -> Iterator[dict[str, Path]]:
    repository = Path(tempfile.mkdtemp(prefix="nv-fresh.repository-"))
    repository.chmod(0o755)
    steps.publish(repository)
    yield dict(steps.shared(repository, wheels(steps.CHECKOUT, rootfs())))
    shutil.rmtree(repository)


@pytest.fixture
def machine(shared: dict[str, Path]) -> Iterator[Machine]:
    """A machine without a clone."""
    with Machine([rootfs()], shared) as made:
        steps.configure_pip(made)
        yield made


@pytest.fixture(scope="session", params=["root", USER])
def first_run(request: pytest.FixtureRequest, shared: dict[str, Path]) -> Iterator[FirstRun]:
    with Machine([rootfs()], shared, disk=True) as machine:
        steps.configure_pip(machine)
        record = _first_run(machine, request.param)
        machine.stop()
        record.layers = [machine.layer, rootfs()]
        yield record


@pytest.fixture
def ready(first_run: FirstRun, shared: dict[str, Path]) -> Iterator[Machine]:
    """A machine with a clone that is set up, in which `make run` has run once."""
    with Machine(first_run.layers, shared) as made:
        yield made


def _first_run(machine: Machine, user: str) -> FirstRun:
    clone = steps.clone(machine, user)
    before = Traces.of(machine)
    marker = Path(f"{machine.root}{HOMES[user]}/{steps.CLONE}/.venv/.ready-run")
    with Terminal(machine, ["make", "run"], user, clone) as terminal:
        with steps.index(machine):
            terminal.wait_for("Setting up", 30)
            deadline = time.monotonic() + SETUP_S
            while not marker.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        assert marker.exists(), f"not set up within {SETUP_S:g} s:\n{terminal.said}"
        began = marker.stat().st_mtime
        terminal.wait_for(READY, READY_S * LOAD)
        ready_s = time.time() - began
        terminal.interrupt()
        code = terminal.wait(60 * LOAD)
        said = terminal.said
    found = READY.search(said)
    assert found
    return FirstRun(user, clone, said, float(found[1]), ready_s, code, _left(machine, before))


def _left(machine: Machine, before: Traces) -> dict[str, list[str]]:
    """The new things. An orphan that has ended is one until the machine's first process has reaped it."""
    deadline = time.monotonic() + REAPED_S
    while (left := Traces.of(machine).since(before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
