"""Cgroups that a container makes below its own, as systemd and dockerd do in privileged containers."""

from __future__ import annotations

import errno
import os
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import hierarchy
from actors.runtime.helper import cgroups
from actors.runtime.model import processes
from tests.cgroups import remove_cgroups


@pytest.fixture
def name() -> Iterator[str]:
    """A container's cgroup in each hierarchy."""
    top = f"nvt{uuid.uuid4().hex[:12]}"
    cgroups.create(f"/{top}", {})
    yield f"/{top}"
    remove_cgroups(top)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as made:
        yield made
        made.kill()


def put_below(name: str, pid: int, *mounts: str) -> None:
    """Move a process to a cgroup two levels below the container's, in the hierarchies at `mounts`, else in all."""
    for path in [point + name for point in mounts] or hierarchy().paths(name):
        inner = Path(path, "system.slice/inner")
        for directory in (inner.parent, inner):
            directory.mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (directory / file).exists() and not hierarchy().unified:
                    (directory / file).write_text((directory.parent / file).read_text())
        (inner / "cgroup.procs").write_text(str(pid))


@pytest.mark.needs("cgroups")
def test_kill_reaches_processes_in_inner_cgroups(name: str, sleeper: subprocess.Popen[bytes]) -> None:
    put_below(name, sleeper.pid)
    processes.kill_cgroup(name)
    assert sleeper.wait(10) == -9


@pytest.mark.needs("cgroups")
@pytest.mark.parametrize("version", [1, 2])
def test_kill_needs_one_hierarchy_only(name: str, sleeper: subprocess.Popen[bytes], version: int) -> None:
    mounts = hierarchy().mounts
    point = mounts.get("") if version == 2 else mounts.get("memory")
    if point is None:
        pytest.skip(f"no cgroup v{version} here")
    put_below(name, sleeper.pid, point)
    assert sleeper.pid in processes._members(name)
    cgroups.kill(name)
    assert sleeper.wait(10) == -9


@pytest.mark.needs("cgroups")
def test_removal_ends_processes_in_inner_cgroups(name: str, sleeper: subprocess.Popen[bytes]) -> None:
    put_below(name, sleeper.pid)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(sleeper.wait, 10)  # reaped at once, else it stays in its cgroup
        cgroups.remove(name)
        assert ended.result() == -9
    assert not [path for path in hierarchy().paths(name) if os.path.exists(path)]


def test_inner_cgroups_are_listed_without_links_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    for number in range(30):
        (top / str(number) / "deep").mkdir(parents=True)
    (top / "cgroup.procs").write_text("1\n0\n")
    (top / "3/deep/cgroup.procs").write_text("2\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/cgroup.procs").write_text("3\n")
    (top / "link").symlink_to(tmp_path / "other")
    found = cgroups.tree(str(top))
    assert len(found) == 61
    assert all(found.index(os.path.dirname(one)) < number for number, one in enumerate(found) if number)
    assert sorted(cgroups.pids(str(top))) == [0, 1, 2]
    assert list(cgroups.pids(str(tmp_path / "none"))) == []
    monkeypatch.setattr(cgroups, "_MOST_CGROUPS", 10)
    assert len(cgroups.tree(str(top))) == 10
    for path in top.rglob("cgroup.procs"):
        path.unlink()
    (top / "link").unlink()
    for _ in range(20):
        cgroups._is_removed(str(top))
    assert not top.exists()


@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("0::/pods/c/init.scope", "/init.scope"),
        ("0::/pods/c/a/b", "/a/b"),
        ("0::/pods/c", ""),
        ("0::/pods/cc/a", ""),
        ("0::/other", ""),
        ("0::/pods/c/../../x", ""),
        ("0::/../x", ""),
        ("4:memory:/pods/c/a", ""),
        ("", ""),
    ],
)
def test_inner_name_is_below_the_containers_cgroup(line: str, inner: str) -> None:
    assert cgroups.inner_name(f"1:cpu:/pods/c/v1\n{line}\n", "/pods/c") == inner


class Version2:
    """Directories in place of cgroup v2. The container's cgroup has controllers below it."""

    def __init__(self, point: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.point = point
        self.first = "0::/pods/c/init.scope\n"
        (point / "pods/c/init.scope").mkdir(parents=True)
        self._write = cgroups._write
        for directory in (point / "pods/c", point / "pods/c/init.scope"):
            (directory / "cgroup.procs").touch()
        monkeypatch.setattr(cgroups, "_hierarchies", lambda: {str(point): [""]})
        monkeypatch.setattr(cgroups, "_write", self.write)
        monkeypatch.setattr(cgroups, "_text_of", lambda path: self.first if path == "/proc/77/cgroup" else "")

    def write(self, path: str, text: str) -> None:
        if path == f"{self.point}/pods/c/cgroup.procs":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        self._write(path, text)


def test_exec_enters_the_first_processs_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Version2(tmp_path, monkeypatch)
    cgroups.enter("/pods/c", 77)
    assert (tmp_path / "pods/c/init.scope/cgroup.procs").read_text() == "0"
    for made.first in ("0::/pods/c\n", "0::/elsewhere\n"):
        with pytest.raises(OSError, match="busy"):
            cgroups.enter("/pods/c", 77)
    with pytest.raises(OSError, match="busy"):
        cgroups.enter("/pods/c")
