"""Clears a killed session with manifests and pods that it cannot end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervisor.cli.run import leftovers, session


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(session.DIRECTORY_VARIABLE, str(tmp_path / "records"))
    return tmp_path / "records"


def killed_session(directory: Path, code: str) -> session.Claim:
    """A dead session of an ordinary user with one pod. Its agent is the Python `code`."""
    pod = directory / "root" / "pods" / "uid"
    pod.mkdir(parents=True)
    (directory / "manifests").mkdir()
    claim = session.Claim.take(directory, [sys.executable, "-c", code, str(pod)], "")
    assert claim is not None
    claim.release()
    (dead,) = leftovers.dead_sessions()
    return dead


def test_directory_beside_manifests_does_not_stop_clearing(tmp_path: Path) -> None:
    directory = tmp_path / "nodevisor-abcdefgh"
    dead = killed_session(directory, "import os, sys; os.rmdir(sys.argv[1])")
    (directory / "manifests" / "more").mkdir()
    (directory / "manifests" / "link").symlink_to(tmp_path)
    (directory / "manifests" / "web.yaml").write_text("{}")
    leftovers.clear(dead, print)
    assert not directory.exists()
    assert list(leftovers.dead_sessions()) == []


def test_state_of_pods_that_may_run_without_cgroups_stays(tmp_path: Path) -> None:
    directory = tmp_path / "nodevisor-abcdefgh"
    dead = killed_session(directory, "pass")
    said: list[str] = []
    leftovers.clear(dead, said.append)
    assert (directory / "root" / "pods" / "uid").exists()
    assert said[-1] == f"{directory} stays: its pods have not ended, and may still run."
    (again,) = leftovers.dead_sessions()
    again.forget()


def test_missing_manifests_are_no_error(tmp_path: Path) -> None:
    session.remove_manifests(tmp_path / "missing")
