"""Starts the suite in a machine of its own, and brings back what it reports."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.fresh.machine import Machine
from tests.upstream.node import specs

CLONE = Path(__file__).resolve().parents[3]
_SHARED = "nodevisor"
REPORT = "/tmp/report"
"""Directory of the results there."""


def run_of_node(report: Path, focus: str | None, skip: str | None) -> None:
    """Run the specs that `focus` selects, else first those that can run side by side, then the others."""
    skip = skip or specs.skip()
    if focus:
        run(focus, skip, 1, report)
        return
    run("|".join(specs.SIDE_BY_SIDE), f"{skip}|{specs.SERIAL}", 4, report)
    run("|".join(specs.ALONE), skip, 1, report / "alone")


def run(focus: str, skip: str, nodes: int, report: Path) -> None:
    """Run the specs, `nodes` side by side. The suite's output, its JUnit files and the logs go to `report`.

    The machine sees this machine's files, and its changes of them are gone afterwards. Needs root and overlayfs.
    """
    report.mkdir(exist_ok=True)
    with Machine([Path("/")], {_SHARED: CLONE}, disk=True) as machine:
        clone = f"/srv/{_SHARED}"
        arguments = json.dumps({"focus": focus, "skip": skip, "nodes": nodes})
        command = machine.command(
            [f"{clone}/.venv/bin/python", "-P", "-m", "tests.upstream.node.inside", arguments],
            cwd=clone, environment={"PYTHONPATH": clone},
        )  # fmt: skip
        try:
            with (report / "output").open("ab") as output:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        finally:
            made = machine.scratch / REPORT.removeprefix("/")
            if made.is_dir():
                shutil.copytree(made, report, dirs_exist_ok=True)
