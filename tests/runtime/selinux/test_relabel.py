"""The helper's labels of files. Without SELinux any text is one, which root may write."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.runtime.helper.kernel import syscalls
from actors.runtime.helper.kernel.relabel import relabel as label_here
from actors.runtime.model.disk import remove_tree
from actors.runtime.model.processes import start_ticks
from actors.runtime.oci import relabeling
from actors.runtime.oci.relabeling import relabel
from actors.runtime.selinux.kernel import ATTRIBUTE
from tests.deep_trees import nest
from tests.harness import wait_for

LABEL = "system_u:object_r:container_file_t:s0:c1,c2"


def can_label(directory: Path) -> bool:
    try:
        os.setxattr(directory, ATTRIBUTE, LABEL.encode())
    except OSError:
        return False
    os.removexattr(directory, ATTRIBUTE)
    return True


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    if os.access("/sys/fs/selinux/context", os.F_OK) or not can_label(tmp_path):
        pytest.skip("needs root, and a file system that takes any label")
    path = tmp_path.resolve() / "volume"
    path.mkdir()
    return path


HELPER = """
import os, sys, time
from actors.runtime.helper import main
def work(*_):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(40)
main.relabel = work
main.main(["relabel", "label", "/volume"])
"""
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HELPER!r}])"


def label_of(path: Path) -> str:
    try:
        return os.getxattr(path, ATTRIBUTE, follow_symlinks=False).decode()
    except OSError:
        return ""


def test_everything_below_a_directory_has_the_label(volume: Path) -> None:
    (volume / "a/b").mkdir(parents=True)
    (volume / "a/b/file").touch()
    os.mkfifo(volume / "a/fifo")
    relabel([str(volume)], LABEL)
    for name in ("", "a", "a/b", "a/b/file", "a/fifo"):
        assert label_of(volume / name) == LABEL


def test_links_are_labelled_and_not_followed(volume: Path) -> None:
    outside = volume.with_name("outside")
    outside.mkdir()
    (outside / "secret").touch()
    (volume / "directory").symlink_to(outside)
    (volume / "file").symlink_to(outside / "secret")
    relabel([str(volume)], LABEL)
    assert label_of(volume / "directory") == label_of(volume / "file") == LABEL
    assert label_of(outside) == label_of(outside / "secret") == ""


def test_volume_that_became_a_link_is_refused(volume: Path) -> None:
    outside = volume.with_name("outside")
    outside.mkdir()
    volume.rmdir()
    volume.symlink_to(outside)
    with pytest.raises(OSError, match="a link or another directory took its place"):
        relabel([str(volume)], LABEL)
    assert label_of(outside) == label_of(volume) == ""


def test_directories_in_a_deep_tree_are_labelled(volume: Path) -> None:
    (volume / "deep").mkdir()
    nest(volume / "deep", 3000)
    try:
        relabel([str(volume)], LABEL)
        assert labelled_levels(volume / "deep") == 3000
    finally:
        remove_tree(volume / "deep")  # pytest's own removal has a limit of depth


def labelled_levels(top: Path) -> int:
    """The number of nested directories, of which each has the label."""
    here, depth = os.open(top, os.O_RDONLY), 0
    try:
        while (names := os.listdir(here)) != ["end"]:
            assert os.getxattr(here, ATTRIBUTE).decode() == LABEL
            depth += 1
            below = os.open(names[0], os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    return depth


@pytest.mark.needs("mounts")
def test_another_mount_in_a_volume_keeps_its_labels(volume: Path) -> None:
    other, place = volume.with_name("other"), volume / "place"
    for path in (other, place):
        path.mkdir()
    (other / "file").touch()
    subprocess.run(["mount", "--bind", other, place], check=True)
    try:
        relabel([str(volume)], LABEL)
        assert label_of(other / "file") == label_of(place) == ""
    finally:
        subprocess.run(["umount", place], check=True)
    assert label_of(volume) == LABEL


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("lacking", [False, True])
def test_file_that_is_a_mount_keeps_its_label(volume: Path, monkeypatch: pytest.MonkeyPatch, lacking: bool) -> None:
    """Also without openat2, which Linux 5.6 and later have."""
    other, place = volume.with_name("other"), volume / "place"
    for path in (other, place, volume / "ordinary"):
        path.touch()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if lacking:
        monkeypatch.setattr(syscalls, "openat2", refuse)
    subprocess.run(["mount", "--bind", other, place], check=True)
    try:
        label_here(str(volume), LABEL)
    finally:
        subprocess.run(["umount", place], check=True)
    assert label_of(other) == label_of(place) == ""
    assert label_of(volume / "ordinary") == label_of(volume) == LABEL


def test_relabeling_ends_with_the_runtime() -> None:
    """A later one may give the files another label: the pod may have a new sandbox."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE) as runtime:
        assert runtime.stdout is not None
        helper = int(runtime.stdout.readline())
        assert start_ticks(helper)
        runtime.kill()
    wait_for(lambda: not start_ticks(helper))


def test_relabeling_ends_at_its_time_limit(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relabeling, "RELABEL_S", 0.5)
    # What comes after the helper's command line are arguments that this shell ignores.
    monkeypatch.setattr(relabeling, "helper_command", lambda _: ["sh", "-c", "exec sleep 1000", "sh"])
    with pytest.raises(OSError, match=r"within 0.5 s; the next try goes on"):
        relabel([str(volume)], LABEL)
