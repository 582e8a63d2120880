"""This process moves itself into its own cgroup, only while a move by the runtime is expected."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

import pytest

from actors._cgroup import migration_prewarm
from actors._cgroup.hierarchy import Hierarchy
from actors._cgroup.migration_prewarm import MigrationPrewarm
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


@pytest.fixture
def procs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file that stands for the own cgroup.procs."""
    path = tmp_path / "cgroup.procs"
    path.touch()
    monkeypatch.setattr(migration_prewarm, "own_procs", lambda: str(path))
    return path


def is_open(path: Path) -> bool:
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == str(path):
                return True
    return False


def rests(made: MigrationPrewarm, procs: Path) -> bool:
    return not made._wanted.is_set() and not made._is_expected() and not is_open(procs)


def test_process_moves_itself_while_a_move_is_expected(procs: Path) -> None:
    made = MigrationPrewarm()
    assert made._thread is None

    def moved() -> bool:
        """Return True for two writes. A busy machine may leave no CPU time within the 20 ms."""
        procs.write_bytes(b"")
        made.expect()
        wait_for(lambda: rests(made, procs), 10, "the end of it")
        return procs.stat().st_size > 1

    for _ in range(2):
        wait_for(moved, 10, "two writes")


def test_process_moves_itself_during_a_call_and_not_longer(monkeypatch: pytest.MonkeyPatch, procs: Path) -> None:
    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    made = MigrationPrewarm()
    with made.during_call():
        wait_for(lambda: procs.stat().st_size > 10, 10, "writes far longer than for an exec")
    wait_for(lambda: not is_open(procs), 10, "the end of them")


def test_call_that_hangs_costs_nothing_more(procs: Path) -> None:
    made = MigrationPrewarm()

    def moved() -> bool:
        """Return True for a write. A busy machine may leave no CPU time within the 0.2 s."""
        procs.write_bytes(b"")
        with made.during_call():
            wait_for(lambda: rests(made, procs), 10, "the end of the writes before the call's")
        return procs.stat().st_size > 0

    wait_for(moved, 30, "a write")


def test_many_calls_at_once_wake_no_thread(monkeypatch: pytest.MonkeyPatch, procs: Path) -> None:
    monkeypatch.setattr(migration_prewarm, "MOST_CALLS", 0)
    made = MigrationPrewarm()
    with made.during_call():
        assert made._thread is None
        assert not made._wanted.is_set()
    made.expect()
    wait_for(lambda: rests(made, procs), 10, "the end of an exec's writes")
    with made.during_call():
        assert not made._wanted.is_set()


def test_one_call_too_many_ends_the_writes(monkeypatch: pytest.MonkeyPatch, procs: Path) -> None:
    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    made = MigrationPrewarm()
    with contextlib.ExitStack() as calls:
        for _ in range(migration_prewarm.MOST_CALLS):
            calls.enter_context(made.during_call())
        wait_for(lambda: procs.stat().st_size > 1, 10, "writes")
        with made.during_call():
            wait_for(lambda: not is_open(procs), 10, "the end of them")


def test_call_goes_on_when_no_thread_can_start(monkeypatch: pytest.MonkeyPatch, procs: Path) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    made = MigrationPrewarm()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        with made.during_call():
            made.expect()
    assert not made._calls
    with made.during_call():
        wait_for(lambda: procs.stat().st_size > 0, 10, "a write as soon as a thread can start")


def test_thread_ends_without_expectations_and_starts_again(monkeypatch: pytest.MonkeyPatch, procs: Path) -> None:
    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    monkeypatch.setattr(migration_prewarm, "IDLE_S", 0.05)
    made = MigrationPrewarm()
    for _ in range(2):
        procs.write_bytes(b"")
        with made.during_call():
            thread = made._thread
            wait_for(lambda: procs.stat().st_size > 0, 10, "a write")
        assert thread is not None
        wait_for(lambda thread=thread: not thread.is_alive(), 10, "the thread's end")


def test_process_stays_where_an_administrator_moves_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed, former, new = (tmp_path / name for name in ("listed", "former", "new"))
    listed.write_text("0::/former\n")
    former.touch()
    new.touch()
    monkeypatch.setattr(migration_prewarm, "OWN_CGROUPS", str(listed))
    monkeypatch.setattr(migration_prewarm, "own_procs", lambda: str(new if "new" in listed.read_text() else former))
    monkeypatch.setattr(migration_prewarm, "CALL_S", 60.0)
    with MigrationPrewarm().during_call():
        wait_for(lambda: former.stat().st_size > 0, 10, "a write")
        listed.write_text("0::/new\n")
        wait_for(lambda: new.stat().st_size > 0, 10, "a write to the new cgroup")
        before = former.stat().st_size
        wait_for(lambda: new.stat().st_size > 5, 10, "more of them")
        assert former.stat().st_size == before


def test_failed_prewarm_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def own() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(migration_prewarm, "own_procs", own)
    monkeypatch.setattr(migration_prewarm, "EXPECTED_S", 60.0)
    caplog.set_level(logging.DEBUG, migration_prewarm.__name__)
    made = MigrationPrewarm()

    def own_records() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == migration_prewarm.__name__]

    for times in (1, 2):
        made.expect()
        wait_for(lambda times=times: len(own_records()) == times, 10, "the try")
    assert all("Permission denied" in record.getMessage() for record in own_records())
