"""`make new-actor` in a copy of the project: the actor runs, its tests pass, and few files change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with a history, so that git can tell what changed."""
    place = tmp_path / "copy"
    shutil.copytree(ROOT, place, ignore=LEFT_OUT, symlinks=True)
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", "all")
    return place


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout


def new_actor(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ".ci/new_actor.py", *arguments]
    return subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True, timeout=60)


def test_new_actor_passes_its_tests_and_changes_few_files(copy: Path) -> None:
    made = new_actor(copy, "disk_health", "watches disks")
    assert made.returncode == 0, made.stderr
    status = git(copy, "status", "--short", "-uall").splitlines()
    changed = {line[3:] for line in status if line.startswith(" M")}
    assert changed == {"proto/agent/registry.py", "proto/README.md", "README.md", "tests/suite/markers.py"}
    subprocess.run([sys.executable, "-m", "ruff", "check", "-q", "actors", "proto", "tests"], cwd=copy, check=True)
    tests = ["tests/disk_health", "tests/pages/test_generated.py", "tests/base/pure/test_layers.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    ran = subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "is not a module name"),
        (("Disk-Health", "watches"), "is not a module name"),
        (("class", "watches"), "is not a module name"),
        (("volume", "watches"), "actors/volume/__init__.py exists"),
        (("config", "watches"), "exists"),
        (("disk_health", 'says "no"'), "PURPOSE is one line"),
    ],
)
def test_bad_name_is_refused_in_a_line_and_nothing_is_written(
    copy: Path, arguments: tuple[str, ...], problem: str
) -> None:
    made = new_actor(copy, *arguments)
    assert made.returncode == 1
    assert problem in made.stderr
    assert len(made.stderr.splitlines()) == 1
    assert git(copy, "status", "--short") == ""
