"""Sessions of `supervisor run`: their records and cgroups, and the removal of dead ones."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from actors._cgroup.quantities.resources import PodLimits
from supervisor.cli.run import leftovers, session
from tests.harness import wait_for

HOLD = """
import sys, time
from pathlib import Path
from supervisor.cli.run.session import Claim
assert Claim.take(Path(sys.argv[1]), ["start"], sys.argv[2])
print("taken", flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(session.DIRECTORY_VARIABLE, str(tmp_path / "records"))
    return tmp_path / "records"


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    """A session's name, with a process of a pod in its cgroups."""
    name = f"nodevisor-{secrets.token_hex(4)}"
    yield name
    fs.remove(f"/{name}", hierarchy())


def hold_session(directory: Path, cgroup_root: str = "") -> subprocess.Popen[str]:
    """A process that holds a session's record."""
    directory.mkdir(mode=0o700)
    process = subprocess.Popen([sys.executable, "-c", HOLD, directory, cgroup_root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def process_in(cgroup: str) -> subprocess.Popen[bytes]:
    fs.create(cgroup, PodLimits(cpu_shares=2), hierarchy())
    process = subprocess.Popen(["sleep", "1000"])
    for path in hierarchy().paths(cgroup):
        Path(path, "cgroup.procs").write_text(str(process.pid))
    return process


@pytest.mark.needs("cgroups")
def test_living_session_stays_and_killed_one_is_cleared(tmp_path: Path, name: str) -> None:
    one = hold_session(tmp_path / name, f"/{name}")
    pod = process_in(f"/{name}/kubepods/besteffort/podx")
    try:
        assert list(leftovers.dead_sessions()) == []
        end(one)
        (dead,) = leftovers.dead_sessions()
        assert dead.record.directory == str(tmp_path / name)
        assert list(leftovers.dead_sessions()) == [], "who clears it has it"
        leftovers.clear(dead, print)
        assert pod.wait(10) == -signal.SIGKILL
        assert not any(os.path.exists(path) for path in hierarchy().paths(f"/{name}"))
        assert not (tmp_path / name).exists()
        assert list(leftovers.dead_sessions()) == []
    finally:
        pod.kill()
        pod.wait()
        end(one)


@pytest.mark.needs("cgroups")
def test_without_kill_a_cgroup_in_use_stays(name: str) -> None:
    process = process_in(f"/{name}/kubepods/podx")
    try:
        assert not session.remove_cgroups(f"/{name}")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert session.remove_cgroups(f"/{name}")


@pytest.mark.parametrize("name", ["/kubepods", "/", "/nodevisor", "/nodevisor-abcdefgh/..", "/nodevisor-abc", "x"])
def test_other_cgroups_are_not_removed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs, "remove", lambda *_: pytest.fail("removed"))
    assert not session.remove_cgroups(name, kill=True)


@pytest.mark.needs("cgroups")
def test_after_a_reboot_nothing_is_killed(tmp_path: Path, name: str, records: Path) -> None:
    one = hold_session(tmp_path / name, f"/{name}")
    end(one)
    (path,) = records.iterdir()
    record = msgspec.json.decode(path.read_bytes(), type=session.Record)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, boot="another")))
    process = process_in(f"/{name}/kubepods/podx")
    try:
        (dead,) = leftovers.dead_sessions()
        leftovers.clear(dead, print)
        assert process.poll() is None
        assert not (tmp_path / name).exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.needs("cgroups")
def test_directory_with_a_mount_stays_and_is_retried(tmp_path: Path, name: str) -> None:
    end(hold_session(tmp_path / name))
    mounted = tmp_path / name / "mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=True)
    said: list[str] = []
    try:
        (mounted / "precious").touch()
        (dead,) = leftovers.dead_sessions()
        leftovers.clear(dead, said.append)
        assert (mounted / "precious").exists()
        assert "still mounted" in said[0]
    finally:
        subprocess.run(["umount", mounted], check=True)
    (again,) = leftovers.dead_sessions()
    leftovers.clear(again, said.append)
    assert not (tmp_path / name).exists()


@pytest.mark.needs("cgroups")
def test_foreign_directory_of_that_name_stays(tmp_path: Path, name: str) -> None:
    end(hold_session(tmp_path / name))
    os.chown(tmp_path / name, 4242, 4242)
    (dead,) = leftovers.dead_sessions()
    leftovers.clear(dead, print)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"directory": 1}'])
def test_files_that_are_no_records_stay(content: bytes, records: Path) -> None:
    records.mkdir(mode=0o700)
    (records / "nodevisor-abcdefgh.json").write_bytes(content)
    assert list(leftovers.dead_sessions()) == []


def test_records_that_others_may_write_are_ignored(records: Path) -> None:
    records.mkdir()
    records.chmod(0o777)
    (records / "nodevisor-abcdefgh.json").write_bytes(b"{}")
    assert list(leftovers.dead_sessions()) == []
    assert session.Claim.take(records, ["start"], "") is None


def test_session_that_leaves_its_pods_is_not_cleared(tmp_path: Path) -> None:
    directory = tmp_path / "nodevisor-abcdefgh"
    directory.mkdir()
    claim = session.Claim.take(directory, ["start"], "")
    assert claim is not None
    claim.forget()
    claim.forget()
    assert list(leftovers.dead_sessions()) == []


def test_record_is_locked_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "nodevisor-abcdefgh"
    directory.mkdir()
    order: list[str] = []
    lock, rename = fcntl.flock, os.rename
    monkeypatch.setattr(fcntl, "flock", lambda *args: (order.append("lock"), lock(*args)))
    monkeypatch.setattr(os, "rename", lambda *args: (order.append("name"), rename(*args)))
    assert session.Claim.take(directory, ["start"], "")
    assert order == ["lock", "name"]
    wait_for(lambda: list(leftovers.dead_sessions()) == [])


def test_last_record_removes_the_directory_of_records(tmp_path: Path, records: Path) -> None:
    one, other = (session.Claim.take(tmp_path / name, ["start"], "") for name in ("one", "other"))
    assert one is not None
    assert other is not None
    one.forget()
    assert [path.name for path in records.iterdir()] == ["other.json"]
    other.forget()
    assert not records.exists()
