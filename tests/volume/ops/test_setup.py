"""Types of hostPaths, and `ready` marks of volumes."""

import logging
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from actors._host import selinux
from actors.volume.ops.ownership import set_ownership
from actors.volume.ops.removal import remove_pod_volumes
from actors.volume.ops.setup import check_host_path, set_up_empty_dir, set_up_files
from actors.volume.policy import Actual
from actors.volume.reconcile.reconstruct import find_volumes
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.volumes import EmptyDir, File, Files, HostPath


def empty(name: str, **fields: Any) -> EmptyDir:
    return EmptyDir("u", "kubernetes.io~empty-dir", name, **fields)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "dir")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "type_", "fails_as"),
    [
        ("none", "", None),
        ("dir", "Directory", None),
        ("link", "Directory", None),
        ("file", "Directory", "directory"),
        ("none", "Directory", "directory"),
        ("dir", "DirectoryOrCreate", None),
        ("new/deep", "DirectoryOrCreate", None),
        ("file", "DirectoryOrCreate", "directory"),
        ("file", "File", None),
        ("dir", "File", "file"),
        ("fifo", "File", "file"),
        ("new", "FileOrCreate", None),
        ("dir", "FileOrCreate", "file"),
        ("socket", "Socket", None),
        ("file", "Socket", "socket file"),
        ("/dev/null", "CharDevice", None),
        ("file", "CharDevice", "character device"),
        ("/dev/null", "BlockDevice", "block device"),
    ],
)
def test_host_path_types_are_checked_or_created(node: Path, path: str, type_: str, fails_as: str | None) -> None:
    full = str(node / path)
    if fails_as is None:
        check_host_path(HostPath("v", full, type_))
        assert not type_ or os.path.exists(full)
    else:
        with pytest.raises(VolumeError) as caught:
            check_host_path(HostPath("v", full, type_))
        assert str(caught.value) == f"hostPath type check failed: {full} is not a {fails_as}"


def test_created_directories_have_modes_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        check_host_path(HostPath("v", str(tmp_path / "new/deep"), "DirectoryOrCreate"))
    finally:
        os.umask(before)
    assert [oct(one.stat().st_mode & 0o7777) for one in (tmp_path / "new", tmp_path / "new/deep")] == ["0o755"] * 2


@pytest.mark.parametrize(
    ("path", "type_", "message"),
    [
        ("/a/../b", "", "invalid HostPath `/a/../b`: must not contain '..'"),
        ("/a", "Pipe", "Pipe is an invalid volume type"),
        ("/proc/no/such/file", "FileOrCreate", "open /proc/no/such/file: no such file or directory"),
    ],
)
def test_bad_host_path_gives_the_kubelets_message(path: str, type_: str, message: str) -> None:
    with pytest.raises(VolumeError) as caught:
        check_host_path(HostPath("v", path, type_))
    assert str(caught.value) == message


@pytest.mark.needs("root")
def test_empty_dir_has_mode_0777_and_the_kubelets_ready_mark(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        set_up_empty_dir(str(tmp_path), empty("v", fs_group=2000))
        set_up_empty_dir(str(tmp_path), empty("v", fs_group=2000))
    finally:
        os.umask(before)
    volume = tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/v"
    assert volume.stat().st_mode & 0o7777 == 0o2777
    assert volume.stat().st_gid == 2000
    assert (tmp_path / "pods/u/plugins/kubernetes.io~empty-dir/v/ready").exists()
    assert find_volumes(str(tmp_path)) == {"u": {"v": Actual(mounted=True, medium="", path=str(volume), relabel=True)}}


@pytest.mark.needs("root")
def test_new_volume_gets_the_label_of_shared_files(tmp_path: Path, volume: Path) -> None:
    """Without SELinux root may write any label: one on the new directory stands for the kernel's."""
    volume.mkdir(parents=True)
    try:
        os.setxattr(volume, selinux.ATTRIBUTE, b"system_u:object_r:var_lib_t:s0")
    except OSError as error:
        pytest.skip(f"no file here takes a label: {error}")
    set_up_files(str(tmp_path), config())
    assert os.getxattr(volume, selinux.ATTRIBUTE).rstrip(b"\0").decode() == selinux.SHARED_LABEL
    own = b"system_u:object_r:container_file_t:s0:c1,c2"
    os.setxattr(volume, selinux.ATTRIBUTE, own)
    set_up_files(str(tmp_path), config(value=b"2"))
    assert os.getxattr(volume, selinux.ATTRIBUTE).rstrip(b"\0") == own, "a refresh leaves the runtime's label"


@pytest.mark.needs("root")
def test_volume_without_a_label_gets_none(tmp_path: Path, volume: Path) -> None:
    if os.path.exists("/sys/fs/selinux/enforce"):
        pytest.skip("each file here has a label")
    set_up_files(str(tmp_path), config())
    assert selinux.ATTRIBUTE not in os.listxattr(volume)


@pytest.mark.needs("root")  # to change groups
def test_empty_dir_made_again_has_its_group_again(tmp_path: Path) -> None:
    set_up_empty_dir(str(tmp_path), empty("v", fs_group=2000))
    volume = tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/v"
    shutil.rmtree(volume)
    set_up_empty_dir(str(tmp_path), empty("v", fs_group=2000))
    assert (volume.stat().st_mode & 0o7777, volume.stat().st_gid) == (0o2777, 2000)


def config(*points: str, value: bytes = b"1", keys: tuple[str, ...] = ("a",), **fields: Any) -> Files:
    directory = EmptyDir("u", "kubernetes.io~configmap", "v", **fields)
    return Files(directory, tuple(File(key, value, 0o644) for key in keys), points)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The directory of `config`'s volume, when it is set up."""
    return tmp_path / "pods/u/volumes/kubernetes.io~configmap/v"


def test_mount_points_are_made_and_stay_until_removal(tmp_path: Path, volume: Path) -> None:
    before = os.umask(0o077)
    try:
        for value in (b"1", b"2"):
            set_up_files(str(tmp_path), config("data", "deep/er/one", "deep/er/two", value=value))
    finally:
        os.umask(before)
    for name in ("data", "deep", "deep/er", "deep/er/one", "deep/er/two"):
        assert (volume / name).lstat().st_mode == 0o40755, name
    assert (volume / "a").read_bytes() == b"2"
    assert len([name for name in os.listdir(volume) if name.startswith("..2")]) == 1
    assert remove_pod_volumes(str(tmp_path), "u", 10.0)
    assert not os.path.lexists(tmp_path / "pods/u/volumes")


def test_mount_point_comes_with_a_later_refresh(tmp_path: Path, volume: Path) -> None:
    set_up_files(str(tmp_path), config())
    set_up_files(str(tmp_path), config("late"))
    assert (volume / "late").is_dir()
    assert (volume / "a").read_bytes() == b"1"


def test_mount_point_takes_the_place_of_a_file(tmp_path: Path, volume: Path) -> None:
    for value in (b"1", b"2"):
        set_up_files(str(tmp_path), config("b", keys=("a", "b"), value=value))
    assert not (volume / "b").is_symlink()
    assert os.listdir(volume / "b") == []
    assert (volume / "a").read_bytes() == b"2"


@pytest.mark.needs("root")  # to change groups
def test_mount_points_belong_to_the_pods_group(tmp_path: Path, volume: Path) -> None:
    for _ in range(2):
        set_up_files(str(tmp_path), config("deep/data", fs_group=2000))
        for name in ("deep", "deep/data"):
            found = (volume / name).stat()
            assert (found.st_mode & 0o7777, found.st_gid) == (0o2755, 2000)


def test_mount_points_follow_no_link_and_keep_a_file(tmp_path: Path, volume: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    set_up_files(str(tmp_path), config())
    (volume / "out").symlink_to(elsewhere)
    (volume / "file").write_text("x")
    set_up_files(str(tmp_path), config("out/in", "file/in", "a/in", "fine"))
    assert os.listdir(elsewhere) == []
    assert (volume / "file").read_text() == "x"
    assert (volume / "a").read_bytes() == b"1"
    assert (volume / "fine").is_dir()


@pytest.mark.needs("root")  # to mount
def test_mount_points_are_not_made_inside_a_mount(tmp_path: Path, volume: Path) -> None:
    set_up_files(str(tmp_path), config("data"))
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["mount", "--bind", other, volume / "data"], check=True)
    try:
        set_up_files(str(tmp_path), config("data/deep", value=b"2", fs_group=2000))
        assert os.listdir(other) == []
        assert other.stat().st_gid == 0
        assert (volume / "a").read_bytes() == b"2"
    finally:
        subprocess.run(["umount", volume / "data"], check=True)


def test_incomplete_volume_is_not_ready(tmp_path: Path) -> None:
    set_up_empty_dir(str(tmp_path), empty("v"))
    (tmp_path / "pods/u/plugins/kubernetes.io~empty-dir/v/ready").unlink()
    assert find_volumes(str(tmp_path)) == {"u": {}}
    assert find_volumes(str(tmp_path / "none")) == {}


def test_link_in_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/u").symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        set_up_empty_dir(str(tmp_path), empty("v"))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.needs("mounts")
def test_files_that_refuse_their_group_are_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    volume, fixed = tmp_path / "volume", tmp_path / "volume/fixed"
    fixed.mkdir(parents=True)
    for path in (volume / "before", fixed / "a\nb", fixed / "c", volume / "later"):
        path.touch(0o600)
    subprocess.run(["mount", "--bind", fixed, fixed], check=True)
    directory = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", fixed], check=True)
        with caplog.at_level(logging.WARNING):
            set_ownership(directory, 4321, read_only=False)
    finally:
        os.close(directory)
        subprocess.run(["umount", fixed], check=True)
    changed = {path.name for path in (volume, *volume.rglob("*")) if path.stat().st_gid == 4321}
    assert changed == {"volume", "before", "later"}
    assert {oct((volume / name).stat().st_mode & 0o7777) for name in ("before", "later")} == {"0o660"}
    (line,) = caplog.messages
    assert line.startswith(f"cannot give all files of {volume} to the fsGroup: chown or chmod failed 6 times, first: ")
    assert line.endswith(": read-only file system")
    assert "\n" not in line
