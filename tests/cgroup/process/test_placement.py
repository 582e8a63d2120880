"""Pods that run outside their cgroup, in trees of files and with processes of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import Hierarchy, hierarchy
from actors._cgroup.placement import lacks_cgroup, must_move, runs_elsewhere
from proto.agent.settings import Settings
from proto.v1 import Container, ObjectMeta, Pod, PodSpec
from tests.harness import wait_for

UID = "6f1c0000-0000-4000-8000-00000000beef"
POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid=UID), spec=PodSpec(containers=(Container(name="c"),)))
ROOT = f"/nv-place-{os.getpid()}"
THERE, ELSEWHERE = Settings(cgroup_root=f"{ROOT}/new"), Settings(cgroup_root=f"{ROOT}/old")
ID = "c" * 64


@pytest.fixture
def pid() -> Iterator[int]:
    """A process of the container ID, in the pod's cgroup as of ELSEWHERE."""
    container = f"{fs.pod_cgroup_of(POD, ELSEWHERE)}/{ID}"
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            fs.enter(container, process.pid, hierarchy())
            yield process.pid
        finally:
            process.kill()
            process.wait()
            assert fs.remove(ROOT, hierarchy())


@pytest.mark.needs("cgroups")
def test_pod_in_the_hierarchy_of_another_start_is_found(pid: int) -> None:
    assert runs_elsewhere(POD, THERE, {ID: pid})
    assert not runs_elsewhere(POD, ELSEWHERE, {ID: pid}), "it is where it belongs"
    assert runs_elsewhere(POD, msgspec.structs.replace(ELSEWHERE, cgroup_driver="systemd"), {ID: pid})
    assert not runs_elsewhere(POD, msgspec.structs.replace(THERE, cgroups_per_qos=False), {ID: pid})
    fs.create_pod_cgroup(POD, THERE)
    assert not runs_elsewhere(POD, THERE, {ID: pid}), "a former start has begun it there"


@pytest.fixture
def place() -> Iterator[Callable[[str], int]]:
    """Starts a process in a cgroup below ROOT, and returns its pid."""
    with contextlib.ExitStack() as processes:

        def start(cgroup: str) -> int:
            process = processes.enter_context(subprocess.Popen(["sleep", "600"]))
            processes.callback(process.kill)
            fs.enter(f"{ROOT}/{cgroup}", process.pid, hierarchy())
            return process.pid

        yield start
    wait_for(lambda: fs.remove(ROOT, hierarchy()), 10, "the cgroups are empty")


SYSTEMD = msgspec.structs.replace(THERE, cgroup_driver="systemd")
SLICE = os.path.basename(fs.pod_cgroup_of(POD, SYSTEMD))
OTHER_SLICE = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"


@pytest.mark.needs("cgroups")
@pytest.mark.parametrize(
    "cgroup",
    [
        f"kubepods/pod{UID}/{ID}/init.scope",  # systemd in the container moves itself
        f"{OTHER_SLICE}/cri-containerd-{ID}.scope",
        f"system.slice/crio-{ID}.scope/container",  # without cgroupsPerQOS the runtime chooses
        f"k8s.io/{ID}",
    ],
)
def test_place_of_other_settings_is_found(place: Callable[[str], int], cgroup: str) -> None:
    assert runs_elsewhere(POD, SYSTEMD, {ID: place(cgroup)})


@pytest.mark.needs("cgroups")
@pytest.mark.parametrize(
    "cgroup",
    [
        f"{OTHER_SLICE}:cri-containerd:{ID}",  # as a runtime reads it that does not know slices
        f"{SLICE}/{ID}",
        f"kata_overhead/{'d' * 64}",
        "elsewhere",  # a privileged container has moved itself
    ],
)
def test_process_that_its_runtime_puts_elsewhere_stays(place: Callable[[str], int], cgroup: str) -> None:
    assert not runs_elsewhere(POD, SYSTEMD, {ID: place(cgroup)})


@pytest.mark.needs("cgroups")
def test_uid_that_is_part_of_any_name_is_no_proof(place: Callable[[str], int]) -> None:
    """A manifest chooses its UID freely."""
    short = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, uid="e"))
    assert not runs_elsewhere(short, THERE, {ID: place("elsewhere")})


@pytest.mark.needs("cgroups")
def test_process_outside_the_mounts_of_the_agent_stays(place: Callable[[str], int]) -> None:
    """The agent runs in a container, which is another one after each of its restarts."""
    place("agent")
    pid = place(f"old/pod{UID}/{ID}")
    seen = Hierarchy(hierarchy().unified, {key: f"{path}{ROOT}/agent" for key, path in hierarchy().mounts.items()})
    assert lacks_cgroup(POD, THERE, seen)
    assert runs_elsewhere(POD, THERE, {ID: pid})
    assert not runs_elsewhere(POD, THERE, {ID: pid}, seen)


@pytest.mark.needs("cgroups")
def test_pod_does_not_end_where_it_could_not_start_again(
    place: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = place(f"old/pod{UID}/{ID}")
    assert must_move(POD, THERE, {ID: pid})
    assert Path(hierarchy().paths(f"{ROOT}/new/kubepods/besteffort")[0]).is_dir()
    assert not must_move(POD, THERE, {ID: 0})

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(fs, "ensure", refuse)
    with pytest.raises(OSError, match="Read-only"):
        must_move(POD, THERE, {ID: pid})


@pytest.mark.needs("cgroups")
def test_process_without_a_cgroup_of_its_own_stays() -> None:
    """At isolation level 3 it runs in that of the agent. Nor does a process count that is not known, or has ended."""
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (os.getpid(), 0, ended.pid):
        assert not runs_elsewhere(POD, THERE, {ID: pid})


@pytest.mark.needs("cgroups")
def test_cgroup_that_may_be_there_is_not_missing(pid: int, tmp_path: Path) -> None:
    """Nothing is mounted where cgroups should be, or they cannot be read."""
    file = tmp_path / "file"
    file.touch()
    for mount in (tmp_path, file, tmp_path / "gone"):
        tree = Hierarchy(unified=True, mounts={"": str(mount)})
        assert not lacks_cgroup(POD, THERE, tree)
        assert not runs_elsewhere(POD, THERE, {ID: pid}, tree)


@pytest.mark.parametrize("mounts", [{"": "v2"}, {"cpu": "v1/cpu", "cpuacct": "v1/cpu", "memory": "v1/memory"}])
def test_cgroup_in_any_hierarchy_is_enough(tmp_path: Path, mounts: dict[str, str]) -> None:
    tree = Hierarchy(unified="" in mounts, mounts={name: f"{tmp_path}/{mount}" for name, mount in mounts.items()})
    for mount in tree.mounts.values():
        Path(mount).mkdir(parents=True, exist_ok=True)
        Path(mount, "cgroup.procs").touch()
    assert lacks_cgroup(POD, THERE, tree)
    assert not lacks_cgroup(POD, msgspec.structs.replace(THERE, cgroups_per_qos=False), tree)
    Path(list(tree.mounts.values())[-1] + fs.pod_cgroup_of(POD, THERE)).mkdir(parents=True)
    assert not lacks_cgroup(POD, THERE, tree)
