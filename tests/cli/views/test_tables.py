"""Tables on a real terminal of some width: lines are whole, and the terminal wraps them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proto.pods.events import Events
from proto.pods.status import Pods
from tests.cli.fake_agent import FakeAgent, row
from tests.cli.pods.test_events import event
from tests.cli.test_commands import make_pod

ROOT = Path(__file__).resolve().parents[3]
NAME = "a-pod-with-a-name-that-is-longer-than-a-narrow-terminal-node"
ACTORS = ("status", "events", "image_gc")
WIDE = "界" * 30
DEATH = "killed by SIGKILL after no answer for 30 s; see /run/nodevisor/deaths/status-2.txt, and the journal from 13:34"


@pytest.fixture(scope="module")
def agent() -> Iterator[FakeAgent]:
    """An agent with long names, a long last death, and an event in wide characters."""
    answers: dict[str, Any] = {
        "status": lambda _: Pods(pods=(make_pod(NAME), make_pod("web-node", "other"))),
        "events": lambda _: Events(events=(event(NAME, WIDE), event("web-node", "m", type="Warning")), revision=5),
        "image_gc": lambda _: None,
    }
    with tempfile.TemporaryDirectory(prefix="nv-", dir="/tmp") as directory:
        fake = FakeAgent(Path(directory), answers)
        fake.rows += (msgspec.structs.replace(row("probe", 0, 2, "degraded"), last_death=DEATH),)
        with fake:
            yield fake


def on_terminal(agent: FakeAgent, columns: int, *words: str) -> str:
    """A command's output on a terminal."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    end, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    said = bytearray()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "supervisor", *words, "--run-dir", str(agent.run_dir)],
            cwd=ROOT,
            env={**environment, "TERM": "xterm"},
            stdout=slave,
        ) as process:
            os.close(slave)
            with contextlib.suppress(OSError):  # EIO: the command has ended
                while data := os.read(end, 65536):
                    said += data
        assert process.returncode == 0
    finally:
        os.close(end)
    return said.decode().replace("\r\n", "\n")


def without_colours(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize("columns", [20, 80, 200])
@pytest.mark.parametrize(
    ("command", "column", "names"),
    [
        ("ps", 0, ["ACTOR", "supervisor", "└─ forkserver", *(f"   ├─ {name}" for name in ACTORS), "   └─ probe"]),
        ("pods", 1, ["NAME", NAME, "web-node"]),
        ("events", 4, ["OBJECT", f"pod/{NAME}", "pod/web-node"]),
    ],
)
def test_each_row_is_one_line_with_whole_names(
    agent: FakeAgent, columns: int, command: str, column: int, names: list[str]
) -> None:
    lines = without_colours(on_terminal(agent, columns, command))
    at = [re.split(r" {3,}(?![└├])", line)[column] for line in lines]
    assert at == names
    assert lines == [line.rstrip() for line in lines]


def test_long_last_cell_is_whole(agent: FakeAgent) -> None:
    assert without_colours(on_terminal(agent, 80, "ps"))[-1].endswith(f"   {DEATH}")
    assert any(line.endswith(f"   {WIDE}") for line in without_colours(on_terminal(agent, 80, "events")))


def test_columns_are_aligned_below_coloured_headers(agent: FakeAgent) -> None:
    said = on_terminal(agent, 80, "ps")
    assert said.startswith("\x1b[1mACTOR")
    assert "\x1b[1;31mdegraded" in said
    header, *rows = without_colours(said)
    assert {line.index("ready") for line in rows[:-1]} == {header.index("STATE")}
    assert {len(line[: header.index("RESTARTS") + len("RESTARTS")].rstrip()) for line in rows} == {
        header.index("RESTARTS") + len("RESTARTS")
    }
