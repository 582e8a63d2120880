"""Refused starts before the first process: each has a clear error and exit status 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proto.agent.settings import Settings
from proto.common.machine import procfs
from supervisor.host.rundir import RunDir, StartError, check_socket_paths, make_private
from supervisor.process import state
from supervisor.supervision.specs import ChildSpec
from tests.supervisor.agent import _CODE, CHILDREN, Agent, spec


def start(settings: Settings, specs: list[ChildSpec] | None = None) -> subprocess.CompletedProcess[str]:
    """The outcome of a start that is expected to be refused."""
    arguments: list[str | bytes] = [
        msgspec.json.encode(settings),
        msgspec.json.encode(specs or [spec("good_a")]),
        CHILDREN,
    ]
    return subprocess.run(
        [sys.executable, "-c", _CODE, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def test_second_start_on_a_run_directory_names_the_first() -> None:
    with Agent(spec("good_a")) as agent:
        row = agent.wait_ready("good_a")["good_a"]
        second = start(agent.settings)
        assert agent.process is not None
        assert second.returncode == 1
        assert f"is in use by the supervisor with pid {agent.process.pid}" in second.stderr
        assert agent.row("good_a").pid == row.pid


def test_ipc_path_that_is_too_long(tmp_path: Path) -> None:
    run_dir = tmp_path / ("r" * 100)
    outcome = start(Settings(run_dir=str(run_dir), root_dir=str(tmp_path)))
    assert outcome.returncode == 1
    assert "control.sock is " in outcome.stderr
    assert "the kernel takes at most 107" in outcome.stderr
    assert not run_dir.exists()


@pytest.mark.parametrize("bytes_over", [0, 1])
def test_limit_of_a_socket_path_is_exact(bytes_over: int) -> None:
    names = ("control", "pod_workers")
    run_dir = Path("/" + "r" * (107 - 1 - len("/pod_workers.sock") + bytes_over))
    if bytes_over:
        with pytest.raises(StartError, match="at least 1 bytes shorter"):
            check_socket_paths(run_dir, names)
    else:
        check_socket_paths(run_dir, names)


@pytest.mark.parametrize("option", ["run_dir", "root_dir"])
def test_directory_that_cannot_be_written(tmp_path: Path, option: str) -> None:
    settings: dict[str, Any] = {
        "run_dir": str(tmp_path / "run"),
        "root_dir": str(tmp_path / "root"),
        option: "/proc/nodevisor",
    }
    outcome = start(Settings(**settings))
    assert outcome.returncode == 1
    assert "cannot start: " in outcome.stderr
    assert "/proc/nodevisor" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_root_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    outcome = start(Settings(run_dir=str(tmp_path / "run"), root_dir=str(tmp_path / "root")))
    assert (outcome.returncode, "--root-dir" in outcome.stderr) == (1, True)


def test_bad_specs(tmp_path: Path) -> None:
    settings = Settings(run_dir=str(tmp_path / "run"), root_dir=str(tmp_path))
    outcome = start(settings, [ChildSpec(name="a", depends_on=("b",))])
    assert (outcome.returncode, "no actor 'b'" in outcome.stderr) == (1, True)
    assert not (tmp_path / "run").exists()


def test_run_directory_is_made_private(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "run")
    assert (tmp_path / "a" / "run").stat().st_mode & 0o777 == 0o700


def test_run_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    with pytest.raises(StartError, match="mode 0755"):
        make_private(tmp_path / "run")


def test_run_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(StartError, match="not a directory"):
        make_private(tmp_path / "run")


@pytest.mark.needs("root")  # to give a directory away
def test_run_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 65534, 65534)
    with pytest.raises(StartError, match="belongs to uid 65534"):
        make_private(tmp_path / "run")


def test_lock_is_free_again_after_leaving(tmp_path: Path) -> None:
    for _ in range(2):
        with RunDir(str(tmp_path / "run"), ["a"]):
            pass


# The state file


def test_state_comes_back_as_saved(tmp_path: Path) -> None:
    saved = state.Saved(actors={"a": state.Entry(incarnation=7, pid=1, start_time=2)})
    state.save(tmp_path / "state.json", saved)
    assert state.load(tmp_path / "state.json") == saved
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"actors": {"a": 1}}', b"\xff"])
def test_damaged_state_file_is_renamed_and_numbers_go_up(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    saved = state.load(tmp_path / "state.json")
    assert state.floor(saved) > 1_600_000_000
    assert (tmp_path / "state.bad").read_bytes() == content


@pytest.mark.parametrize("kind", ["directory", "fifo"])
@pytest.mark.parametrize("before", ["nothing", "file", "directory"])
def test_state_file_of_another_kind_is_put_aside(tmp_path: Path, kind: str, before: str) -> None:
    path, bad = tmp_path / "state.json", tmp_path / "state.bad"
    if before == "file":
        bad.write_text("kept")
    elif before == "directory":
        (bad / "kept").mkdir(parents=True)
    path.mkdir() if kind == "directory" else os.mkfifo(path)
    saved = state.load(path)
    assert state.floor(saved) > 1_600_000_000
    assert not path.exists()
    assert bad.is_dir() or before != "directory"
    state.save(path, saved)
    assert state.load(path) == saved


def test_leftover_is_known_by_pid_start_time_and_title() -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        entry = state.Entry(incarnation=1, pid=stranger.pid, start_time=procfs.start_time(stranger.pid))
        assert state.end_leftovers(state.Saved(actors={"a": entry})) == []
        assert stranger.poll() is None
        stranger.kill()
