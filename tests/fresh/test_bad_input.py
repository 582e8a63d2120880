"""Mistakes and troubles of new users: each gets a clear line and no traceback, and the next try works."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.fresh import steps
from tests.fresh.conftest import FIRST_RUN, LOAD, READY, READY_S, SETUP_S, FirstRun
from tests.fresh.downloads.rootfs import USER
from tests.fresh.machine import HOMES, Machine
from tests.fresh.terminal import Terminal
from tests.harness import wait_for

pytestmark = [pytest.mark.needs("mmdebstrap", "root"), pytest.mark.timeout(600)]

CLONE = f"{HOMES[USER]}/{steps.CLONE}"
SETUP = ["make", ".venv/.ready-run"]
PODS = {"greeting", "job", "shared-volume", "watched", "web"}


@contextmanager
def no_ensurepip(machine: Machine) -> Iterator[None]:
    """Debian's python3 without the package python3-venv."""
    machine.must("sh", "-c", "mv /usr/lib/python3*/ensurepip /root/ensurepip.away")
    yield
    machine.must("sh", "-c", "mv /root/ensurepip.away $(echo /usr/lib/python3.[0-9]*)/ensurepip")


@contextmanager
def python_3_10(machine: Machine) -> Iterator[None]:
    """A python3 that says that it is 3.10, first in PATH."""
    machine.must("mkdir", "-p", "/opt/old")
    lines = "import sys; sys.version_info = (3, 10, 12, 'final', 0); sys.version = '3.10.12'"
    machine.must("sh", "-c", 'echo "$1" > /opt/old/sitecustomize.py', "sh", lines)
    script = '#!/bin/sh\nPYTHONPATH=/opt/old exec /usr/bin/python3 "$@"'
    machine.must("sh", "-c", 'echo "$1" > /usr/local/bin/python3; chmod 755 /usr/local/bin/python3', "sh", script)
    yield
    machine.must("rm", "/usr/local/bin/python3")


@contextmanager
def full_disk(machine: Machine) -> Iterator[None]:
    """The clone fits, its environment does not."""
    machine.must("mount", "-t", "tmpfs", "-o", "size=32m,mode=755,uid=1000", "small", CLONE)
    machine.must("git", "clone", "--quiet", "file:///srv/repository", CLONE, user=USER)
    yield
    machine.must("mount", "-o", "remount,size=1g", CLONE)


@contextmanager
def read_only_clone(machine: Machine) -> Iterator[None]:
    machine.must("mount", "--bind", CLONE, CLONE)
    machine.must("mount", "-o", "remount,bind,ro", CLONE)
    yield
    machine.must("umount", CLONE)


@contextmanager
def no_index(machine: Machine) -> Iterator[None]:
    machine.must("mv", "/etc/pip.conf", "/etc/pip.conf.away")
    yield
    machine.must("mv", "/etc/pip.conf.away", "/etc/pip.conf")


Problem = Callable[[Machine], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (no_ensurepip, r"cannot .*apt(-get)? install .*python3-venv"),
        (python_3_10, r"cannot .*3\.11.*PYTHON="),
        (full_disk, r"cannot .*(No space left|disk is full|full disk)"),
        (read_only_clone, r"cannot .*([Rr]ead-only|not writable|cannot write)"),
        (no_index, r"cannot .*(index|network)"),
    ],
    ids=["no ensurepip", "Python 3.10", "full disk", "read-only clone", "no index"],
)
def test_failed_set_up_says_why_in_a_line_and_the_next_works(machine: Machine, problem: Problem, says: str) -> None:
    steps.clone(machine, USER)
    with steps.index(machine):
        with problem(machine):
            failed = machine.run(["make", "run"], USER, CLONE, timeout_s=60 * LOAD)
        next_try = machine.run(SETUP, USER, CLONE, timeout_s=SETUP_S)
    assert failed.returncode != 0, failed.stdout
    assert re.search(says, failed.stdout), failed.stdout
    assert "Traceback" not in failed.stdout
    assert next_try.returncode == 0, next_try.stdout


def test_killed_set_up_is_finished_by_the_next(machine: Machine) -> None:
    clone = steps.clone(machine, USER)
    with steps.index(machine):
        with Terminal(machine, ["make", "run"], USER, clone) as terminal:
            terminal.wait_for("Setting up", 30)
            environment = Path(f"{machine.root}{clone}/.venv")
            wait_for(
                lambda: len(list(environment.glob("lib/*/site-packages/*.dist-info"))) > 4, SETUP_S, "some packages"
            )
            machine.run(["sh", "-c", "kill -KILL -1"], USER)
            terminal.wait(30)
        assert not (environment / "bin/supervisor").exists()
        next_try = machine.run(SETUP, USER, clone, timeout_s=SETUP_S)
    assert next_try.returncode == 0, next_try.stdout
    assert "Traceback" not in next_try.stdout
    machine.must(".venv/bin/supervisor", "--help", user=USER, cwd=clone)


def test_two_concurrent_set_ups_of_a_clone_share_the_work(machine: Machine) -> None:
    clone = steps.clone(machine, USER)
    with (
        steps.index(machine),
        Terminal(machine, ["make", "run"], USER, clone) as one,
        Terminal(machine, ["make", "run"], USER, clone) as other,
    ):
        for terminal in (one, other):
            terminal.wait_for(READY, SETUP_S + READY_S * LOAD)
        for terminal in (one, other):
            terminal.interrupt()
        assert {one.wait(60 * LOAD), other.wait(60 * LOAD)} <= {0, 130}, one.last + other.last


@FIRST_RUN
@pytest.mark.parametrize("first_run", [USER], indirect=True)
def test_a_terminal_of_40_columns_shows_names_and_states(ready: Machine, first_run: FirstRun) -> None:
    with Terminal(ready, ["make", "run"], first_run.user, first_run.clone, columns=40) as terminal:
        terminal.wait_for(READY, READY_S * LOAD)
        terminal.interrupt()
        terminal.wait(60 * LOAD)
    rows = [line for line in terminal.said.splitlines() if re.match(r"\S+-fresh|NAME ", line)]
    assert max(len(row.rstrip()) for row in rows) <= 40
    settled = {row.split("-fresh")[0] for row in rows if re.search(r"Running|Completed", row)}
    assert settled == PODS, terminal.last


@FIRST_RUN
@pytest.mark.parametrize("first_run", ["root"], indirect=True)
def test_output_to_a_pipe_is_plain_lines(ready: Machine, first_run: FirstRun) -> None:
    command = ["sh", "-c", "make run 2>&1 | (trap '' INT; cat)"]
    with Terminal(ready, command, first_run.user, first_run.clone) as terminal:
        terminal.wait_for(READY, READY_S * LOAD)
        terminal.interrupt()
        terminal.wait(60 * LOAD)
    assert "\x1b" not in terminal.raw
    assert "Traceback" not in terminal.raw


@FIRST_RUN
@pytest.mark.parametrize("first_run", ["root"], indirect=True)
def test_unwritable_run_directory_hinders_nothing(ready: Machine, first_run: FirstRun) -> None:
    ready.must("mount", "-o", "remount,ro", "/run")
    with Terminal(ready, ["make", "run"], first_run.user, first_run.clone) as terminal:
        terminal.wait_for(READY, READY_S * LOAD)
        terminal.interrupt()
        assert terminal.wait(60 * LOAD) in (0, 130), terminal.last
    assert "Traceback" not in terminal.said
