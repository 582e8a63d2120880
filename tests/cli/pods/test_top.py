"""`supervisor top`: the figures of /stats/summary as kubectl top shows them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from actors.stats.pages import summary
from proto.node.stats import Document, GetSummary
from proto.pods.status import Pods
from proto.wire.errors import Refused
from proto.wire.message import Message
from supervisor.cli import group
from supervisor.cli.pods import top as command
from tests.cli.fake_agent import FakeAgent
from tests.cli.test_commands import make_pod
from tests.stats.sample import MACHINE, READING

NANO = {name: 1_500_000 for name in summary.cpu_times(READING) if "/podfull/" in name or name == "/"}
NANO["/"] = 500_000_000


def answer(request: Message) -> Message:
    assert request == GetSummary(only_cpu_and_memory=True)
    return Document(data=msgspec.json.encode(summary.build(READING, NANO, MACHINE)))


def top(runner: CliRunner, run_dir: Path, *arguments: str) -> Result:
    with FakeAgent(run_dir, {"stats": answer, "status": lambda _: Pods(pods=(make_pod(namespace="bare"),))}):
        return runner.invoke(group, ["top", *arguments, "--run-dir", str(run_dir)])


def words(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_pods_are_the_sums_of_their_containers(runner: CliRunner, run_dir: Path) -> None:
    assert words(top(runner, run_dir)) == [
        ["NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["default", "full", "3m", "2Mi"],
        ["default", "host", "-", "2Mi"],
    ]


def test_containers_by_memory(runner: CliRunner, run_dir: Path) -> None:
    assert words(top(runner, run_dir, "--containers", "--sort-by", "memory"))[1:] == [
        ["default", "host", "agent", "-", "2Mi"],
        ["default", "full", "web", "2m", "1Mi"],
        ["default", "full", "side", "2m", "1Mi"],
    ]


def test_the_node(runner: CliRunner, run_dir: Path) -> None:
    percent = round(500 / (os.cpu_count() or 1) / 10)
    assert words(top(runner, run_dir, "node"))[1] == ["vm", "500m", f"{percent}%", "50Mi", "5%"]


def test_exact_figures_for_programs(runner: CliRunner, run_dir: Path) -> None:
    found = json.loads(top(runner, run_dir, "-o", "json", "--sort-by", "cpu").stdout)
    assert found[0] == {"namespace": "default", "name": "full", "cpuNanoCores": 3_000_000, "memoryBytes": 5 << 19}
    assert found[1]["cpuNanoCores"] is None


def test_pods_without_figures_are_not_said_to_be_missing(runner: CliRunner, run_dir: Path) -> None:
    result = top(runner, run_dir, "-n", "bare")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No figures for 1 pods: none of their containers runs, or they have no cgroups" in result.stderr
    assert "isolation level 3" in result.stderr


@pytest.mark.parametrize("arguments", [["-n", "elsewhere"], ["--containers", "-n", "elsewhere"]])
def test_top_without_pods_is_reported_on_stderr(arguments: list[str], runner: CliRunner, run_dir: Path) -> None:
    result = top(runner, run_dir, *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "No pods found.\n")


def test_unavailable_statistics_are_an_error(runner: CliRunner, run_dir: Path) -> None:
    with FakeAgent(run_dir, {"stats": lambda _: Refused("Unavailable", "cannot measure: no cgroups")}):
        result = runner.invoke(group, ["top", "--run-dir", str(run_dir)])
    assert result.exit_code == 1
    assert "cannot measure: no cgroups" in result.stderr


@pytest.mark.parametrize("what", ["pods", "node"])
def test_figures_are_measured_again(
    runner: CliRunner, run_dir: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "INTERVAL_S", 0.0)
    found = [line[0] for line in words(top(runner, run_dir, what, "--count", "2"))]
    assert found.count("NAME" if what == "node" else "NAMESPACE") == 2
    lines = top(runner, run_dir, what, "--count", "2", "-o", "json").stdout.splitlines()
    assert len([json.loads(line) for line in lines]) == 2


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["node", "--containers"], "--containers"),
        (["node", "-n", "a"], "-n"),
        (["node", "--sort-by", "name"], "--sort-by"),
        (["actors", "--containers"], "--containers"),
        (["actors", "-n", "a"], "-n"),
    ],
)
def test_option_without_a_meaning_is_refused(
    runner: CliRunner, run_dir: Path, arguments: list[str], option: str
) -> None:
    result = top(runner, run_dir, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} has no meaning for `top {arguments[0]}`." in result.stderr
