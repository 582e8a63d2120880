"""OOM kills of ended containers, on a directory tree that looks like cgroup v2's."""

import shutil
from pathlib import Path

import pytest

from actors._cgroup.hierarchy import Hierarchy
from actors.runtime.model import oom

pytestmark = pytest.mark.needs("root")


class Pod:
    """A pod's cgroup with containers. As in the kernel, its counter has all kills below, also in removed cgroups."""

    def __init__(self, mount: Path) -> None:
        self.below = ""
        """Of crun's cgroup in a container's scope."""
        self.tree = Hierarchy(unified=True, mounts={"": str(mount)})
        self._directory = mount / "pod.slice"
        self._directory.mkdir()
        self._kills: dict[str, int] = {}
        self._write(self._directory, 0)

    def start(self, name: str) -> None:
        oom.begin(f"/pod.slice/{name}", self.tree)
        (self._directory / name).mkdir()
        self.kill(name, 0)

    def kill(self, name: str, kills: int = 1) -> None:
        self._kills[name] = self._kills.get(name, 0) + kills
        self._write(self._directory / name, self._kills[name])
        self._write(self._directory, sum(self._kills.values()))

    def remove(self, name: str) -> None:
        shutil.rmtree(self._directory / name)

    def found(self, name: str, *, by_sigkill: bool = True) -> int:
        return oom.kills(f"/pod.slice/{name}{self.below}", self.tree, by_sigkill=by_sigkill)

    def _write(self, directory: Path, kills: int) -> None:
        (directory / "memory.events").write_text(f"low 0\nhigh 0\nmax 7\noom 1\noom_kill {kills}\noom_group_kill 0\n")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.parametrize("below", ["", "/container"])
@pytest.mark.parametrize("removed_before", [False, True])
def test_kills_are_found_also_in_a_removed_cgroup(pod: Pod, removed_before: bool, below: str) -> None:
    pod.below = below
    for name in ("a.scope", "b.scope", "c.scope"):
        pod.start(name)
    pod.kill("a.scope", 2)
    pod.kill("c.scope")
    ended = []
    for name in ("a.scope", "b.scope", "c.scope"):
        if removed_before:
            pod.remove(name)
        ended.append(pod.found(name))
        if not removed_before:
            pod.remove(name)
    assert ended == [2, 0, 1]


def test_the_next_container_does_not_inherit_kills(pod: Pod) -> None:
    for name, kills in (("a.scope", 1), ("b.scope", 0), ("c.scope", 3), ("d.scope", 0)):
        pod.start(name)
        pod.kill(name, kills)
        pod.remove(name)
        assert pod.found(name) == kills


def test_counted_cgroup_that_is_still_there_hides_no_kills_of_a_removed_one(pod: Pod) -> None:
    for name in ("a.scope", "b.scope"):
        pod.start(name)
        pod.kill(name)
    assert pod.found("a.scope") == 1
    pod.remove("b.scope")
    assert pod.found("b.scope") == 1
    pod.remove("a.scope")
    pod.start("c.scope")
    pod.remove("c.scope")
    assert pod.found("c.scope") == 0


def test_containers_removed_at_once_share_their_kills(pod: Pod) -> None:
    names = ("a.scope", "failing.scope", "b.scope", "c.scope")
    for name in names:
        pod.start(name)
    for name in ("a.scope", "b.scope", "c.scope"):
        pod.kill(name)
    pod.kill("b.scope")
    for name in names:
        pod.remove(name)
    found = [pod.found(name, by_sigkill="failing" not in name) for name in names]
    assert found == [1, 0, 2, 1]


def test_container_that_failed_to_start_is_not_waited_for(pod: Pod) -> None:
    pod.start("failed.scope")
    pod.remove("failed.scope")
    assert pod.found("failed.scope") == 0
    pod.start("a.scope")
    pod.kill("a.scope", 3)
    pod.remove("a.scope")
    assert pod.found("a.scope") == 3


def test_kills_before_our_first_container_are_not_its_own(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "pod.slice/theirs").mkdir()
    pod.kill("theirs", 4)
    pod.remove("theirs")
    pod.start("a.scope")
    pod.remove("a.scope")
    assert pod.found("a.scope") == 0


def test_a_pod_that_is_gone_has_no_kills(tmp_path: Path) -> None:
    assert oom.kills("/pod.slice/a.scope", Hierarchy(unified=True, mounts={"": str(tmp_path)})) == 0


def test_v1_has_the_containers_own_counter_only(tmp_path: Path) -> None:
    (tmp_path / "pod/c").mkdir(parents=True)
    (tmp_path / "pod/c/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    tree = Hierarchy(unified=False, mounts={"memory": str(tmp_path)})
    oom.begin("/pod/c", tree)
    assert oom.kills("/pod/c", tree) == 2
