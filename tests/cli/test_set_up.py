"""The set-up of a clone by `make`: errors are one line, and the next try works."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import psutil
import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 180.0
pytestmark = pytest.mark.timeout(600)  # environments are made, also while the machine does much else
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "small"
version = "1"
requires-python = ">=3.11"
[dependency-groups]
dev = ["missing-tool"]
"""
BACKEND = '''
"""Builds this project, which needs no package index."""
import os, time, zipfile
def build_editable(directory, config_settings=None, metadata_directory=None):
    open("building", "w").close()
    while os.path.exists("slow"):
        time.sleep(0.02)
    name = "small-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        info = "small-1.dist-info"
        wheel.writestr("small_package.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "small_package.py,,\\n")
    return name
'''


class Made(NamedTuple):
    directory: Path
    by: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_of_the_clone", ROOT / ".ci" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A clone with this project's Makefile and set-up, a small package in place of the agent, and its environment."""
    directory = tmp_path_factory.mktemp("made")
    fill(directory)
    return Made(directory, make(directory))


@pytest.fixture
def clone(made: Made, tmp_path: Path) -> Path:
    """A copy of it that is out of date. Its Python finds its own packages, so the copy works."""
    directory = tmp_path / "clone"
    shutil.copytree(made.directory, directory, symlinks=True)
    (directory / ".venv/.ready-run").unlink()
    (directory / "building").unlink()
    return directory


def fill(directory: Path) -> None:
    (directory / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "setup.py", directory / ".ci")
    shutil.copy(ROOT / "Makefile", directory)
    (directory / "pyproject.toml").write_text(PROJECT)
    (directory / "backend.py").write_text(BACKEND)


def command(kind: str = "run", **variables: str) -> list[str]:
    """`make` up to the marker, with this Python and an index that does not answer."""
    given = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", **variables}
    python = getattr(sys, "_base_executable", sys.executable)
    return [
        "env",
        *("--unset=MAKEFLAGS", "--unset=MAKELEVEL"),  # of the `make` that runs the tests
        *(f"{name}={value}" for name, value in given.items()),
        "make",
        f"PYTHON={python}",
        f".venv/.ready-{kind}",
    ]


def make(clone: Path, given: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        given or command(), cwd=clone, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@contextlib.contextmanager
def making(clone: Path) -> Iterator[subprocess.Popen[str]]:
    """A set-up that is in the middle of pip."""
    (clone / "slow").touch()
    process = subprocess.Popen(
        command(), cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (clone / "building").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        yield process
    finally:
        (clone / "slow").unlink(missing_ok=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_whole(clone: Path) -> bool:
    imported = subprocess.run([clone / ".venv/bin/python", "-c", "import small_package"], check=False, cwd="/")
    return (clone / ".venv/.ready-run").exists() and imported.returncode == 0


def said_in_a_line(done: subprocess.CompletedProcess[str]) -> str:
    """The stderr of make, without its own last line."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_set_up_reports_its_steps_and_the_next_make_has_none(made: Made) -> None:
    assert made.by.returncode == 0, made.by.stderr
    assert made.by.stdout.splitlines() == [
        "Setting up .venv: making the environment ...",
        "Setting up .venv: downloading and installing packages, some 40 MB the first time ...",
    ]
    assert is_whole(made.directory)
    assert "Setting up" not in make(made.directory).stdout


def test_missing_tools_leave_the_agents_environment_unchanged(clone: Path) -> None:
    (clone / ".venv/.ready-run").touch()
    line = said_in_a_line(make(clone, command("dev")))
    assert line.startswith("cannot set up: no package index answers; connect to the network, or name an index")
    assert is_whole(clone)
    assert not (clone / ".venv/.unfinished").exists()


def test_ctrl_c_during_downloads_leaves_a_usable_environment(clone: Path) -> None:
    with making(clone) as broken:
        os.killpg(broken.pid, signal.SIGINT)
        said = broken.communicate(timeout=DEADLINE_S)[0]
    assert "The set-up is broken off; the next make begins it anew." in said
    assert "Traceback" not in said
    assert not (clone / ".venv/.tmp").exists()
    assert not is_whole(clone)
    assert "making the environment" not in make(clone).stdout
    assert is_whole(clone)


def test_second_set_up_waits_and_repeats_nothing(clone: Path) -> None:
    with making(clone) as first, subprocess.Popen(command(), cwd=clone, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert second.stdout.readline().startswith("Another set-up works on .venv")
        (clone / "slow").unlink()
        assert first.wait(DEADLINE_S) == 0
        assert second.wait(DEADLINE_S) == 0
        assert "Setting up" not in second.stdout.read()
    assert is_whole(clone)


def test_set_up_after_a_kill_waits_for_the_old_pip_and_restarts(clone: Path) -> None:
    with making(clone) as first:
        below = psutil.Process(first.pid).children(recursive=True)
        [pid] = [process.pid for process in below if process.cmdline()[1:] == [".ci/setup.py", "run"]]
        os.kill(pid, signal.SIGKILL)
        with subprocess.Popen(command(), cwd=clone, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert second.stdout.readline().startswith("Another set-up works on .venv")
            (clone / "slow").unlink()
            rest = second.stdout.read()
            assert "making the environment" in rest, (rest, second.wait())
            assert second.wait(DEADLINE_S) == 0
    assert is_whole(clone)


def test_unfinished_or_broken_environment_is_not_used(
    setup: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "VENV", clone / ".venv")
    monkeypatch.setattr(setup, "UNFINISHED", clone / ".venv/.unfinished")
    assert setup.is_usable()
    (clone / ".venv/.unfinished").touch()
    assert not setup.is_usable()
    (clone / ".venv/.unfinished").unlink()
    (clone / ".venv/bin/python").unlink()
    (clone / ".venv/bin/python").symlink_to("/no/such/python")
    assert not setup.is_usable()


def test_missing_or_old_python_is_reported(clone: Path, tmp_path: Path) -> None:
    line = said_in_a_line(make(clone, ["make", "PYTHON=no-such-python", ".venv/.ready-run"]))
    assert line.startswith("cannot set up: no no-such-python here; install Python 3.11 or later")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.version_info = (3, 10, 12, 'final', 0)")
    line = said_in_a_line(make(clone, command(PYTHONPATH=str(tmp_path))))
    assert "is Python 3.10, and 3.11 or later is needed;" in line
    assert "make PYTHON=" in line


def test_python_of_32_bits_is_reported(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.maxsize = 2**31 - 1")
    line = said_in_a_line(make(clone, command(PYTHONPATH=str(tmp_path))))
    assert "is of 32 bits, and 64 are needed; install a 64-bit system" in line


def test_set_up_parses_in_an_older_python() -> None:
    ast.parse((ROOT / ".ci" / "setup.py").read_text(), feature_version=(3, 8))


@pytest.mark.needs("mounts")
@pytest.mark.parametrize(
    ("mounts", "says"),
    [
        ('mount -t tmpfs -o size=4m small . && cd "$PWD" && cp -a ../whole/. .', "No space left on device"),
        ("mount --bind . . && mount -o remount,bind,ro .", "is on a read-only file system; clone to a directory"),
    ],
)
def test_unwritable_disk_is_reported(tmp_path: Path, mounts: str, says: str) -> None:
    for name in ("whole", "clone"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name)
    inside = f'{mounts} && cd "$PWD" && exec "$@"'
    line = said_in_a_line(make(tmp_path / "clone", ["unshare", "--mount", "sh", "-c", inside, "sh", *command()]))
    assert line.startswith("cannot set up: ")
    assert says in line


@pytest.mark.parametrize(
    ("said", "full", "expected"),
    [
        ("OSError: [Errno 28] No space left on device", ["/tmp"], "No space left on device (/tmp): the disk is full"),
        ("Error: Command '[...]' returned non-zero exit status 1.", ["/x"], "No space left on device (/x)"),
        ("PermissionError: [Errno 13] Permission denied: '/x/.venv'", [], "cannot write /x/.venv: permission denied"),
        ("Max retries exceeded with url: /simple/pykka/", ["/x"], "no package index answers"),
        (
            "ERROR: No matching distribution found for pyzmq>=26\n",
            [],
            "the package index has no pyzmq>=26 for Python 3.",
        ),
        ("one\n\nerror: the compiler\n", [], "a step failed; the end of its output:\n  one\n  error: the compiler"),
    ],
)
def test_reason_comes_from_the_steps_output(setup: ModuleType, said: str, full: list[str], expected: str) -> None:
    assert setup.reason(said, full).startswith(expected)
