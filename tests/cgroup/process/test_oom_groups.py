"""memory.oom.group of containers' scopes, which systemd resets."""

from pathlib import Path

import pytest

from actors._cgroup import oom_groups
from actors._cgroup.hierarchy import Hierarchy
from proto.agent.settings import Settings
from proto.v1 import ObjectMeta, Pod

SLICE = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"
POD = Pod(metadata=ObjectMeta(uid="a-b", name="p"))
SYSTEMD = Settings(cgroup_driver="systemd")
NAMES = {"abc": "cri-containerd-abc.scope", "def": "nodevisor-def.scope", "box": "cri-containerd-box.scope"}


@pytest.fixture
def scopes(tmp_path: Path) -> Path:
    for name in NAMES.values():
        file = tmp_path / SLICE / name / "memory.oom.group"
        file.parent.mkdir(parents=True)
        file.write_text("0\n")
    return tmp_path


def groups(mount: Path) -> dict[str, str]:
    return {key: (mount / SLICE / name / "memory.oom.group").read_text().strip() for key, name in NAMES.items()}


def test_only_containers_are_killed_as_a_whole_again(scopes: Path) -> None:
    tree = Hierarchy(unified=True, mounts={"": str(scopes)})
    assert sorted(oom_groups.restore(POD, {"abc", "def", "gone"}, SYSTEMD, tree)) == ["abc", "def"]
    assert {key: text[0] for key, text in groups(scopes).items()} == {"abc": "1", "def": "1", "box": "0"}
    assert oom_groups.restore(POD, {"abc", "def"}, SYSTEMD, tree) == []


@pytest.mark.parametrize(
    ("settings", "unified"),
    [
        (Settings(cgroup_driver="systemd", single_process_oom_kill=True), True),
        (Settings(cgroup_driver="cgroupfs"), True),
        (Settings(cgroup_driver="systemd", cgroups_per_qos=False), True),
        (SYSTEMD, False),
    ],
)
def test_nothing_is_written_where_no_group_is_wanted(scopes: Path, settings: Settings, *, unified: bool) -> None:
    tree = Hierarchy(unified=unified, mounts={"": str(scopes)})
    assert oom_groups.restore(POD, {"abc"}, settings, tree) == []
    assert set(groups(scopes).values()) == {"0"}


def test_a_pod_without_a_slice_is_left_out(tmp_path: Path) -> None:
    assert oom_groups.restore(POD, {"abc"}, SYSTEMD, Hierarchy(unified=True, mounts={"": str(tmp_path)})) == []
