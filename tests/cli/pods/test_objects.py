"""`supervisor objects`: objects with their source, and never their data."""

from __future__ import annotations

import json
import time
from pathlib import Path

from click.testing import CliRunner

from proto.pods.objects import ObjectList, ObjectProblem, ObjectRef, ObjectRow
from supervisor.cli import group
from tests.cli.fake_agent import FakeAgent

SECRET = ObjectRow(
    ref=ObjectRef(kind="Secret", namespace="default", name="db"),
    file="/o/db.yaml",
    line=3,
    changed=time.time() - 40 * 86400,
    keys=("user", "password"),
    used_by=2,
    secret_type="Opaque",
)
CLASS = ObjectRow(ref=ObjectRef(kind="RuntimeClass", name="gvisor"), file="/o/rc.yaml", line=1, changed=time.time())
PROBLEM = ObjectProblem(file="/o/bad.yaml", line=2, field="data.a", problem="not base64", keeps_previous=True)


def test_objects_are_a_table_and_problems_are_on_stderr(runner: CliRunner, run_dir: Path) -> None:
    answer = ObjectList(objects=(CLASS, SECRET), problems=(PROBLEM,), source="/o")
    with FakeAgent(run_dir, {"objects": lambda _: answer}):
        result = runner.invoke(group, ["objects", "--run-dir", str(run_dir)])
        filtered = runner.invoke(group, ["objects", "-n", "default", "--run-dir", str(run_dir)])
        data = json.loads(runner.invoke(group, ["objects", "-o", "json", "--run-dir", str(run_dir)]).stdout)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["KIND", "NAMESPACE", "NAME", "KEYS", "PODS", "FILE", "AGE"]
    assert lines[1][:6] == ["RuntimeClass", "-", "gvisor", "0", "0", "/o/rc.yaml:1"]
    assert lines[2] == ["Secret", "default", "db", "2", "2", "/o/db.yaml:3", "40d"]
    assert len(filtered.stdout.splitlines()) == 2
    assert result.stderr == "cannot use /o/bad.yaml:2: data.a: not base64; its last good version stays in use\n"
    assert data["objects"][1]["keys"] == ["user", "password"]
    assert data["problems"][0]["keepsPrevious"] is True


def test_objects_without_a_directory_is_reported(runner: CliRunner, run_dir: Path) -> None:
    with FakeAgent(run_dir, {"objects": lambda _: ObjectList()}):
        result = runner.invoke(group, ["objects", "--run-dir", str(run_dir)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "without --objects-dir" in result.stderr
