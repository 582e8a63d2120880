"""This process moves itself into its own cgroup, only while a move by the runtime is expected."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import pytest

from actors._cgroup import migration_prewarm
from actors._cgroup.hierarchy import Hierarchy
from tests.harness import wait_for


def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mounts: list[str], lines: list[str]) -> str:
    """Return the cgroup.procs found when each of `mounts` has the cgroups of `lines`."""
    at = {name: str(tmp_path / (name or "unified")) for name in mounts}
    for line in lines:
        _, controllers, cgroup = line.split(":", 2)
        if mount := at.get(controllers.split(",")[0]):
            directory = Path(mount + cgroup)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.procs").touch()
    monkeypatch.setattr(migration_prewarm, "hierarchy", lambda: Hierarchy(unified=mounts == [""], mounts=at))
    listed = tmp_path / "listed"
    listed.write_text("".join(f"{line}\n" for line in lines))
    return migration_prewarm.own_procs(str(listed)).removeprefix(str(tmp_path))


@pytest.mark.parametrize(
    ("mounts", "lines", "expected"),
    [
        ([""], ["0::/system.slice/agent.service"], "/unified/system.slice/agent.service/cgroup.procs"),
        ([""], ["0::/"], "/unified/cgroup.procs"),
        (["memory", ""], ["4:memory:/a", "0::/b"], "/unified/b/cgroup.procs"),
        (["cpu", "cpuacct"], ["1:cpu,cpuacct:/a"], "/cpu/a/cgroup.procs"),
        (["pids"], ["2:cpuset:/elsewhere", "1:pids:/odd:name"], "/pids/odd:name/cgroup.procs"),
    ],
)
def test_the_own_cgroup_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mounts: list[str], lines: list[str], expected: str
) -> None:
    assert places(monkeypatch, tmp_path, mounts, lines) == expected


def test_no_writable_cgroup_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot write to any"):
        places(monkeypatch, tmp_path, [], ["0::/"])


@pytest.mark.needs("cgroups")
def test_move_into_the_own_cgroup_changes_nothing() -> None:
    before = Path("/proc/self/cgroup").read_text()
    Path(migration_prewarm.own_procs()).write_bytes(b"0")
    assert Path("/proc/self/cgroup").read_text() == before


def test_process_moves_itself_while_a_move_is_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    procs = tmp_path / "cgroup.procs"
    opened: list[int] = []

    def own() -> str:
        procs.touch()
        opened.append(1)
        return str(procs)

    monkeypatch.setattr(migration_prewarm, "own_procs", own)
    made = migration_prewarm.MigrationPrewarm()
    assert not opened

    def moved() -> bool:
        """Return True for two writes. A busy machine may leave no CPU time within the 20 ms."""
        procs.write_bytes(b"")
        times = len(opened) + 1
        made.expect()
        wait_for(lambda: len(opened) == times, 10, "it is opened once for each")
        wait_for(lambda: not is_open(procs), 10, "the end of it")
        return procs.stat().st_size > 1

    for _ in range(2):
        wait_for(moved, 10, "two writes")


def test_process_moves_itself_during_a_call_and_not_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    procs = tmp_path / "cgroup.procs"
    procs.touch()
    monkeypatch.setattr(migration_prewarm, "own_procs", lambda: str(procs))
    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    made = migration_prewarm.MigrationPrewarm()
    with made.during_call():
        wait_for(lambda: procs.stat().st_size > 10, 10, "writes far longer than for an exec")
    wait_for(lambda: not is_open(procs), 10, "the end of them")


def test_call_that_hangs_costs_nothing_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    procs = tmp_path / "cgroup.procs"
    procs.touch()
    monkeypatch.setattr(migration_prewarm, "own_procs", lambda: str(procs))
    made = migration_prewarm.MigrationPrewarm()
    with made.during_call():
        wait_for(lambda: procs.stat().st_size > 0, 10, "the first write")
        wait_for(lambda: not is_open(procs), 10, "the end of them before the call's")


def test_many_calls_at_once_cause_no_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    procs = tmp_path / "cgroup.procs"
    opened: list[int] = []

    def own() -> str:
        procs.touch()
        opened.append(1)
        return str(procs)

    monkeypatch.setattr(migration_prewarm, "own_procs", own)
    monkeypatch.setattr(migration_prewarm, "MOST_CALLS", 0)
    with migration_prewarm.MigrationPrewarm().during_call():
        wait_for(lambda: bool(opened), 10, "a look")
        wait_for(lambda: not is_open(procs), 10, "its end")
    assert procs.stat().st_size == 0


def is_open(path: Path) -> bool:
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == str(path):
                return True
    return False


def test_failed_prewarm_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def own() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(migration_prewarm, "own_procs", own)
    caplog.set_level(logging.DEBUG, migration_prewarm.__name__)
    made = migration_prewarm.MigrationPrewarm()

    def own_records() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == migration_prewarm.__name__]

    for times in (1, 2):
        made.expect()
        wait_for(lambda times=times: len(own_records()) == times, 10, "the try")
    assert all("Permission denied" in record.getMessage() for record in own_records())
