"""Searches for secrets in messages to actors, through a tap, and in files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.agent.agent import Agent
from tests.agent.changing import content
from tests.harness import wait_for


def tap(agent: Agent, name: str) -> subprocess.Popen[str]:
    """`supervisor tap NAME`, listening."""
    command = [sys.executable, "-m", "supervisor", "tap", name, "--run-dir", str(agent.run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    tapped = f"{agent.run_dir}/{name}.tap"
    wait_for(lambda: _peers(tapped) > 0, 30, f"the tap of {name} is open")
    return process


def _peers(path: str) -> int:
    """Return the number of connections to a Unix socket."""
    table = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") and line.split()[5] == "03" for line in table)


def holding(paths: Iterable[Path], *secrets: bytes) -> list[str]:
    """Return the files that contain one of the secrets."""
    texts = ((path, content(path)) for path in paths)
    return [str(path) for path, text in texts if any(secret in text for secret in secrets)]
