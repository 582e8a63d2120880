"""Removal of pods' leftovers from the disk, and the files that have to stay."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from actors._host.files import trees
from actors.container_gc import removal
from proto.wire.errors import AskTimeout
from tests.deep_trees import nest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pods/u-1/containers/main").mkdir(parents=True)
    (tmp_path / "pods/u-1/containers/main/8c32ca09").write_text("bye")
    (tmp_path / "pods/u-1/etc-hosts").write_text("127.0.0.1 localhost")
    (tmp_path / "pods/u-1/volumes/kubernetes.io~empty-dir").mkdir(parents=True)
    (tmp_path / "pods/u-2/containers").mkdir(parents=True)
    return tmp_path


def test_a_pods_directory_goes_and_the_others_stay(root: Path) -> None:
    assert removal.remove_pod_directories(str(root), ["u-1", "unknown"]) == 1
    assert [path.name for path in (root / "pods").iterdir()] == ["u-2"]
    assert not list((root / "nodevisor/removed").iterdir())
    assert removal.remove_pod_directories(str(root), ["u-1"]) == 0


@pytest.mark.needs("mounts")
def test_directories_on_a_file_system_of_their_own_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", root / "pods"], check=True)
    try:
        for uid in ("u-1", "u-2", "u-3"):
            (root / "pods" / uid / "containers").mkdir(parents=True)

        def fails(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patched:
            patched.setattr(trees, "remove", fails)
            assert removal.remove_pod_directories(str(root), ["u-1"]) == 1
        assert os.listdir(root / "pods" / ".removed-u-1") == ["containers"]
        noted: list[str] = []
        assert removal.remove_pod_directories(str(root), [".removed-u-1", "u-2"], noted.extend) == 1
        assert noted == ["u-2"]
        assert os.listdir(root / "pods") == ["u-3"]
    finally:
        subprocess.run(["umount", root / "pods"], check=True)


def test_a_directory_with_a_volume_stays(root: Path) -> None:
    data = root / "pods/u-1/volumes/kubernetes.io~empty-dir/v/data"
    data.parent.mkdir()
    data.write_text("precious")
    assert removal.with_volumes(str(root), ["u-1", "u-2"]) == ["u-1"]
    assert removal.remove_pod_directories(str(root), ["u-1", "u-2"]) == 1
    assert data.read_text() == "precious"


@pytest.mark.needs("mounts")
def test_nothing_is_deleted_through_a_mount(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "precious").write_text("x")
    target = root / "pods/u-1/containers/main/mounted"
    target.mkdir()
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        assert removal.mounted_pods(str(root)) == {"u-1"}
        assert removal.remove_pod_directories(str(root), ["u-1", "u-2"]) == 1
        assert (source / "precious").exists()
        assert (root / "pods/u-1/etc-hosts").exists()
    finally:
        subprocess.run(["umount", target], check=True)
    assert removal.remove_pod_directories(str(root), ["u-1"]) == 1


@pytest.mark.needs("mounts")
def test_trash_of_an_earlier_run_goes_unless_it_has_a_mount(root: Path) -> None:
    trash = root / "nodevisor/removed/.removed-u-9"
    (trash / "deep").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", trash / "deep"], check=True)
    try:
        (trash / "deep/precious").write_text("x")
        removal.remove_pod_directories(str(root), ["u-2"])
        assert (trash / "deep/precious").exists()
    finally:
        subprocess.run(["umount", trash / "deep"], check=True)
    removal.remove_pod_directories(str(root), [])
    assert not trash.exists()


def test_directories_nested_deeper_than_a_path_go(root: Path) -> None:
    nest(root / "pods/u-1/containers", 3000)
    assert removal.remove_pod_directories(str(root), ["u-1"]) == 1
    assert list((root / "nodevisor/removed").iterdir()) == []
    log = root / "logs/ns_web_u-1/main"
    log.mkdir(parents=True)
    nest(log, 300)
    assert removal.remove_log_directories(str(root / "logs"), ["ns_web_u-1"]) == 1
    assert list((root / "logs").iterdir()) == []


def test_log_directories_symlinks_and_one_containers_logs(tmp_path: Path) -> None:
    logs, links = tmp_path / "pods", tmp_path / "containers"
    links.mkdir()
    for name in ("0.log", "0.log.20261120", "1.log", "10.log"):
        path = logs / "ns_web_u-1/main" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (links / "web_ns_main-1.log").symlink_to(logs / "ns_web_u-1/main/1.log")
    (links / "web_ns_main-0.log").symlink_to(logs / "ns_web_u-1/main/0.log")
    (links / "plain.log").write_text("not ours")
    removal.remove_container_log(str(logs / "ns_web_u-1/main/0.log"))
    assert sorted(os.listdir(logs / "ns_web_u-1/main")) == ["1.log", "10.log"]
    (links / "theirs_ns_main-0.log").symlink_to("/nowhere/ns_theirs_u-2/main/0.log")
    assert removal.dead_symlinks(str(links), str(logs)) == {"web_ns_main-0.log": "ns_web_u-1"}
    removal.remove_symlinks(str(links), ["web_ns_main-0.log", "plain.log", "none.log"])
    assert sorted(os.listdir(links)) == ["plain.log", "theirs_ns_main-0.log", "web_ns_main-1.log"]
    assert removal.symlinks_into(str(links), [str(logs / "ns_web_u-1")]) == ["web_ns_main-1.log"]
    assert removal.symlinks_into(str(links), [str(logs / "ns_web_u")]) == []
    assert removal.remove_log_directories(str(logs), ["ns_web_u-1", "none"]) == 1
    assert os.listdir(logs) == []


def test_a_pod_with_a_directory_for_raw_devices_has_volumes(tmp_path: Path) -> None:
    (tmp_path / "pods/u/volumeDevices").mkdir(parents=True)
    assert not removal.has_volumes(str(tmp_path), "u")
    (tmp_path / "pods/u/volumeDevices/kubernetes.io~csi").mkdir()
    assert removal.has_volumes(str(tmp_path), "u")


@pytest.mark.needs("mounts")
def test_link_or_bind_mount_as_pod_directory_is_not_followed(root: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/pods/u-7/containers"
    theirs.mkdir(parents=True)
    (theirs / "precious").write_text("x")
    (root / "pods/u-7").symlink_to(theirs.parent)
    bound = root / "pods/u-8"
    bound.mkdir()
    subprocess.run(["mount", "--bind", theirs.parent, bound], check=True)
    try:
        removal.remove_pod_directories(str(root), ["u-7", "u-8"])
        assert (theirs / "precious").exists()
        assert not (root / "pods/u-7").is_symlink(), "the link itself is ours"
        assert (bound / "containers/precious").exists()
    finally:
        subprocess.run(["umount", bound], check=True)


def test_trash_of_others_in_a_shared_log_directory_stays(tmp_path: Path) -> None:
    for name in (".removed-ns_theirs_u-7", ".removed-ns_ours_u-1", "ns_ours_u-2"):
        (tmp_path / name).mkdir()
    assert removal.remove_log_directories(str(tmp_path), [".removed-ns_ours_u-1", "ns_ours_u-2"]) == 1
    assert os.listdir(tmp_path) == [".removed-ns_theirs_u-7"]


def test_removal_that_begins_too_late_never_runs() -> None:
    ran: list[str] = []
    removal.in_time(60.0, ran.append)("in time")
    with pytest.raises(AskTimeout, match="append did not begin within 0 s"):
        removal.in_time(0.0, ran.append)("late")
    assert ran == ["in time"]
