"""`supervisor plan`: tables, formats and the condition of --if."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proto.node import container_gc, eviction, image_gc
from proto.node.eviction import PlannedVictim
from supervisor.cli import group
from tests.cli.fake_agent import FakeAgent

POD = PlannedVictim(kind="pod", name="ns/web", id="u", rule="above its request, priority 0", age_s=120.0, bytes=5)
SANDBOX = PlannedVictim(kind="sandbox", name="uid", id="s", rule="not needed", age_s=1.0)


def test_eviction_plan_is_a_table_with_notes(runner: CliRunner, run_dir: Path) -> None:
    asked = []

    def answer(request: eviction.PlanEviction) -> eviction.Plan:
        asked.append((request.signal, request.quantity))
        return eviction.Plan(victims=(POD,), notes=("pods go one at a time",))

    line = ["plan", "eviction", "--if", "memory.available<500Mi", "--run-dir", str(run_dir)]
    with FakeAgent(run_dir, {"eviction": answer}):
        result = runner.invoke(group, line)
        plain = runner.invoke(group, [*line, "-o", "plain"])
        data = json.loads(runner.invoke(group, [*line, "-o", "json"]).stdout)
    assert asked == [("memory.available", "500Mi")] * 3
    assert result.stdout.splitlines()[0].split() == ["ORDER", "KIND", "NAME", "RULE", "AGE", "AMOUNT"]
    assert result.stdout.splitlines()[1].split() == ["1", "pod", "ns/web", *POD.rule.split(), "2m", "5"]
    assert result.stderr == "Note: pods go one at a time.\n"
    assert plain.stdout == "pod ns/web\n"
    assert data["victims"] == [
        {"kind": "pod", "name": "ns/web", "id": "u", "rule": POD.rule, "ageSeconds": 120.0, "bytes": 5}
    ]


def test_collections_are_planned_without_a_condition(runner: CliRunner, run_dir: Path) -> None:
    answers: dict[str, Any] = {
        "image_gc": lambda request: image_gc.Plan(victims=(), notes=(f"available {request.available_bytes}",)),
        "container_gc": lambda _: container_gc.Plan(victims=(SANDBOX,)),
    }
    with FakeAgent(run_dir, answers):
        images = runner.invoke(group, ["plan", "image-gc", "--if", "imagefs.available<1Ki", "--run-dir", str(run_dir)])
        containers = runner.invoke(group, ["plan", "container-gc", "--run-dir", str(run_dir)])
    assert images.stderr == "Nothing would go.\nNote: available 1023.\n"
    assert containers.stdout.splitlines()[1].split() == ["1", "sandbox", "uid", "not", "needed", "1s", "-"]


@pytest.mark.parametrize(
    "words",
    [
        ("eviction", "--if", "memory.available"),
        ("container-gc", "--if", "memory.available<1"),
        ("image-gc", "--if", "memory.available<1"),
        ("image-gc", "--if", "imagefs.available<10%"),
    ],
)
def test_wrong_conditions_are_refused(runner: CliRunner, run_dir: Path, words: tuple[str, ...]) -> None:
    with FakeAgent(run_dir, {}):
        result = runner.invoke(group, ["plan", *words, "--run-dir", str(run_dir)])
    assert result.exit_code == 1
    assert result.stderr.startswith("cannot ") or "cannot " in result.stderr
