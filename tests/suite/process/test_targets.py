"""pytest with the plugin, run as make does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tests.suite import prepare

ROOT = Path(__file__).resolve().parents[3]
IMPURE = """
import subprocess, time, pytest

@pytest.mark.pure
def test_starts_a_process():
    subprocess.run(["true"])

@pytest.mark.pure
def test_sleeps():
    time.sleep(0.01)

@pytest.mark.pure
def test_computes():
    time.sleep(0)

def test_may_sleep():
    time.sleep(0.01)

@pytest.mark.needs("root", "openssl")
def test_of_the_node():
    pass
"""
SHARED = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def made():
    pathlib.Path(f"made-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(6))
def test_uses(made, number):
    pass
"""


def run_pytest(directory: Path, *arguments: str) -> list[str]:
    """The lines that pytest prints about the tests of `directory`."""
    (directory / "test_some.py").write_text(IMPURE)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    pure\n    process\n    needs\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.suite.plugin", "-q", "-c", "pytest.ini", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_impure_test_fails_and_left_out_tests_are_listed(tmp_path: Path, workers: str) -> None:
    lines = run_pytest(tmp_path, "--target=test", "-n", workers)
    told = "\n".join(lines)
    assert "this test is not pure: subprocess.Popen true; move it to a folder of `process`" in told
    assert "this test is not pure: time.sleep 0.01" in told
    assert "2 failed, 2 passed" in lines[-2]
    assert lines[-1] == "Left out: 1 tests (needs openssl: 1). Run them: make test-node"


def test_module_fixtures_are_made_by_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_shared.py").write_text(SHARED)
    lines = run_pytest(tmp_path, "-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder", "test_shared.py")
    assert "6 passed" in lines[-1]
    assert len(list(tmp_path.glob("made-*"))) == 1


def test_the_other_target_runs_the_rest(tmp_path: Path) -> None:
    lines = run_pytest(tmp_path, "--target=node", "--collect-only")
    assert [line.partition("::")[2] for line in lines if "::" in line] == ["test_of_the_node"]
    assert lines[-1] == "Left out: 4 tests, which `make test` runs."


def test_tests_that_begin_too_late_are_reported_and_not_run(tmp_path: Path) -> None:
    lines = run_pytest(tmp_path, "--budget-s=0.000001", "-rs", "--deselect=test_some.py::test_of_the_node")
    assert any(line.startswith("SKIPPED [4]") and "time is up; make test runs it" in line for line in lines), lines


def test_results_of_both_targets_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = SourceFileLoader("count", str(ROOT / ".ci/count"))
    count = importlib.util.module_from_spec(importlib.util.spec_from_loader("count", loader))  # type: ignore[arg-type]
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(count)
    sys.dont_write_bytecode = before
    first, second, missing = tmp_path / "a.xml", tmp_path / "b.xml", tmp_path / "c.xml"
    first.write_text('<testsuites><testsuite tests="10" failures="0" errors="0" skipped="1"/></testsuites>')
    second.write_text('<testsuites><testsuite tests="5" failures="1" errors="1" skipped="0"/></testsuites>')
    assert count.main([str(first)]) == 0
    assert capsys.readouterr().out == "9 passed, 0 failed, 1 skipped\n"
    assert count.main([str(first), str(second)]) == 1
    assert capsys.readouterr().out == "12 passed, 2 failed, 1 skipped\n"
    assert count.main([str(missing)]) == 1
    assert capsys.readouterr().out == "0 passed, 1 failed\n"


def test_a_machine_that_cannot_install_is_told_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "PACKAGES", {"there": lambda: True, "runc": lambda: False, "crun": lambda: False})
    monkeypatch.setattr(prepare, "find", lambda name: None if name == "kube-scheduler" else name)
    monkeypatch.setattr(prepare.shutil, "which", lambda _: None)
    assert prepare.main() == 1
    told = capsys.readouterr().err
    assert "no runc, no crun (as Debian calls the packages); install them" in told
    assert "no kube-scheduler; name a directory" in told


def test_root_on_debian_installs_what_is_missing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    installed: set[str] = set()

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append([str(part) for part in command])
        installed.update(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(prepare, "PACKAGES", {"there": lambda: True, "runc": lambda: "runc" in installed})
    monkeypatch.setattr(prepare, "find", lambda name: None if name == "kube-scheduler" else name)
    monkeypatch.setattr(prepare, "missing_requirements", lambda: "")
    monkeypatch.setattr(prepare.os, "geteuid", lambda: 0)
    monkeypatch.setattr(prepare.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(prepare.subprocess, "run", run)
    assert prepare.main() == 0
    assert [command[:2] for command in ran] == [
        ["apt-get", "update"],
        ["apt-get", "install"],
        [str(ROOT / ".ci/kubernetes")],
    ]
    assert ran[1][-1] == "runc"
    told = capsys.readouterr().out
    assert "Installing what the tests need: runc\n" in told
    assert "Building kube-scheduler into" in told
