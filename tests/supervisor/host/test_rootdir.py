"""The root directory as a shared mount: the mount table and real mounts."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.common.machine import mountinfo
from supervisor.host import rootdir
from supervisor.host.rootdir import around

TABLE = rb"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /var/lib rw shared:7 - ext4 /dev/vdb rw
31 30 0:26 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/a\040b rw shared:8 - tmpfs tmpfs rw
32 22 0:27 / /var/lib2 rw shared:9 master:3 - ext4 /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "on", "below"),
    [
        ("/srv/kubelet", ("/", False), []),
        ("/var/lib2/kubelet", ("/var/lib2", True), []),
        (
            "/var/lib/kubelet",
            ("/var/lib", True),
            ["/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/a b"],
        ),
    ],
)
def test_path_is_on_the_innermost_mount(path: str, on: tuple[str, bool], below: list[str]) -> None:
    found, inner = around(path, TABLE)
    assert ((found.mount_point, found.shared), [one.mount_point for one in inner]) == (on, below)


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A directory on a mount that is not shared."""
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    subprocess.run(["mount", "--make-private", tmp_path], check=True)
    yield tmp_path / "root"
    subprocess.run(["umount", "-R", tmp_path], check=True)


def mounts(path: Path) -> list[tuple[str, bool]]:
    found, below = around(str(path), mountinfo.read())
    return [(one.mount_point, one.shared) for one in (found, *below)]


@pytest.mark.needs("mounts")
def test_it_is_made_a_shared_mount_once(private: Path) -> None:
    rootdir.make_shared(str(private))
    assert mounts(private) == [(str(private), True)]
    (private / "pods").mkdir()
    rootdir.make_shared(str(private))
    assert mounts(private) == [(str(private), True)]
    table = mountinfo.read()
    assert sum(f" {private} ".encode() in line for line in table.split(b"\n")) == 1


@pytest.mark.needs("mounts")
def test_mounts_in_the_root_directory_are_never_hidden(private: Path, caplog: pytest.LogCaptureFixture) -> None:
    inner = private / "pods/u"
    inner.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "t", inner], check=True)
    (inner / "f").touch()
    rootdir.make_shared(str(private))
    assert (inner / "f").exists()
    assert not mounts(private)[0][1]
    assert str(inner) in caplog.text


def test_failure_to_share_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    rootdir.make_shared(str(tmp_path / "file"))
    assert "mountPropagation does not work" in caplog.text
