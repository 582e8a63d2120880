"""Mounts left inside a pod's volumes: they are unmounted with the volume, and nothing else changes.

The pods are on a shared mount, as on a node with systemd.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors._host.files import mounts
from actors.volume.helper import channel
from actors.volume.helper.process import Progress, serve
from actors.volume.ops import removal, unmounting
from actors.volume.ops.inside import DIRECTORY, opened
from actors.volume.steps.codec import Outcomes, decode_answer, encode
from actors.volume.steps.errors import VolumeError, go_text
from actors.volume.steps.places import EMPTY_DIR, LOCAL_VOLUME, NFS
from actors.volume.steps.volumes import TearDown
from tests.volume.dead_fuse import DeadFuse

pytestmark = pytest.mark.needs("mounts")

UID = "0b0f1f7e-1111-2222-3333-444444444444"
WHERE = ("disk", "memory", "sub path", "local volume")


class Node:
    """A root directory with a pod, and a disk of the node beside it."""

    def __init__(self, top: Path) -> None:
        self.top, self.root, self.disk, self.log = top, top / "root", top / "disk", top / "log"
        top.mkdir()
        run("mount", "-t", "tmpfs", "node", top)
        run("mount", "--make-shared", top)
        self.disk.mkdir()
        (self.disk / "precious").touch()
        self.log.touch()
        self.pod = self.root / "pods" / UID

    def volume(self, kind: str = "disk") -> Path:
        """Set up a volume; returns the directory that a container mounts."""
        path = self.pod / f"volumes/{LOCAL_VOLUME if kind == 'local volume' else EMPTY_DIR}/v"
        path.mkdir(parents=True)
        if kind == "memory":
            run("mount", "-t", "tmpfs", "volume", path)
        elif kind == "local volume":
            run("mount", "--bind", self.disk, path)
        elif kind == "sub path":
            (path / "sub").mkdir()
            target = self.pod / "volume-subpaths/v/c/0"
            target.mkdir(parents=True)
            run("mount", "--bind", path / "sub", target)
            path = target
        return path

    def remove(self, slice_s: float = 60.0) -> bool:
        return removal.remove_pod_volumes(str(self.root), UID, slice_s)

    def unmount_below(self) -> bool:
        path = self.pod / f"volumes/{EMPTY_DIR}/v"
        with opened(str(path.parent), DIRECTORY) as directory:
            return unmounting.unmount_below(directory, str(path), bool)

    def left(self) -> list[str]:
        """The pod's mounts."""
        return [one.mount_point for one in mounts.mounts_under(str(self.pod))]


ELSEWHERE = """
mount --make-private "$(findmnt -n -o TARGET -T "$1")"
mount -t tmpfs far "$1"
mount --make-shared "$1"
mkdir "$1/inner"
mount -t tmpfs inner "$1/inner"
touch "$1/inner/precious"
mount --rbind "$1" "$2"
echo bound
read -r _
"""
"""A container: binds a disk, which only its namespace has, into the volume. It ends with its input."""


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    one = Node(tmp_path / "node")
    yield one
    mounts.unmount(str(one.top), mounts.MNT_DETACH)  # with all mounts below


@pytest.mark.parametrize("kind", WHERE)
def test_mount_that_outlives_its_container_goes(node: Node, kind: str) -> None:
    point = node.volume(kind) / "log.txt"
    point.touch()
    # As a container with Bidirectional propagation: its namespace ends, the host's copy of its mount does not.
    run("unshare", "--mount", "--propagation", "unchanged", "mount", "--bind", node.log, point)
    assert str(point) in node.left()
    assert node.remove()
    assert node.left() == []
    assert list(node.pod.iterdir()) == []
    assert node.log.exists()
    assert (node.disk / "precious").exists()


@pytest.mark.parametrize("kind", WHERE)
def test_mounts_of_a_bound_tree_stay_at_its_source(node: Node, kind: str) -> None:
    (node.disk / "inner").mkdir()
    run("mount", "-t", "tmpfs", "inner", node.disk / "inner")
    (node.disk / "inner/precious").touch()
    point = node.volume(kind) / "a/b"
    point.mkdir(parents=True)
    run("mount", "--rbind", node.disk, point)
    assert (point / "inner/precious").exists()
    assert node.remove()
    assert node.left() == []
    assert (node.disk / "precious").exists()
    assert (node.disk / "inner/precious").exists()


def test_mounts_stay_at_a_source_in_another_namespace(node: Node, tmp_path: Path) -> None:
    far, point = tmp_path / "far", node.volume() / "a"
    for one in (far, point):
        one.mkdir()
    command = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-ec", ELSEWHERE, "sh", str(far), str(point)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as container:
        assert container.stdout is not None
        assert container.stdout.readline() == b"bound\n"
        source = Path(f"/proc/{container.pid}/root{far}/inner/precious")
        assert (point / "inner/precious").exists()
        assert not mounts.type_at(str(far))
        assert source.exists()
        assert node.remove()
        assert source.exists()
        assert node.left() == []


def test_operators_mount_in_a_local_volume_stays(node: Node) -> None:
    path = node.volume("local volume")
    other = node.top / "other"
    other.mkdir()
    run("mount", "--bind", node.disk, other)  # as another pod's
    (node.disk / "own").mkdir()
    run("mount", "-t", "tmpfs", "own", node.disk / "own")
    (node.disk / "own/precious").touch()
    assert (path / "own/precious").exists()
    assert node.remove()
    assert node.left() == []
    assert (node.disk / "own/precious").exists()
    assert (other / "own/precious").exists()


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_stacked_and_nested_mounts_go(node: Node, kind: str) -> None:
    point = node.volume(kind) / "a b"
    point.mkdir()
    for _ in range(2):
        run("mount", "-t", "tmpfs", "left", point)
    (point / "c").mkdir()
    run("mount", "-t", "tmpfs", "left", point / "c")
    assert node.remove()
    assert list(node.pod.iterdir()) == []


@pytest.mark.parametrize("kind", WHERE)
def test_mount_in_use_is_refused_until_it_is_free(node: Node, kind: str) -> None:
    point = node.volume(kind) / "a"
    point.mkdir()
    run("mount", "-t", "tmpfs", "used", point)
    with (point / "precious").open("w"), pytest.raises(VolumeError, match="device or resource busy"):
        node.remove()
    assert (point / "precious").exists()
    assert node.remove()
    assert list(node.pod.iterdir()) == []


def test_busy_mount_may_have_any_name(node: Node) -> None:
    point = Path(os.fsdecode(bytes(node.volume()) + b"/a\xff"))
    point.mkdir()
    run("mount", "-t", "tmpfs", "used", point)
    actor, helper = channel.pair()
    with closing(actor), closing(helper), (point / "used").open("w"):
        channel.send(actor, encode((TearDown(uid=UID, slice_s=60.0),)))
        actor.shutdown(socket.SHUT_WR)
        serve(helper, Progress(), str(node.root))
        answer = decode_answer(channel.receive(actor, wait=False) or b"")
    assert isinstance(answer, Outcomes)
    assert answer.outcomes[0].error.endswith("/v/a\\udcff: device or resource busy")


@pytest.mark.parametrize("text", ["plain", "a\udcff", "\ud800"])
def test_text_of_an_error_is_utf_8(text: str) -> None:
    assert go_text("mkdir", text, OSError(errno.EBUSY, "busy")).encode()


def test_slice_without_time_unmounts_one_at_least(node: Node) -> None:
    path = node.volume("memory")
    for number in range(3):
        (path / str(number)).mkdir()
        run("mount", "-t", "tmpfs", "left", path / str(number))
    for left in (3, 2, 1):
        assert not node.remove(0.0)
        assert len(node.left()) == left
    assert node.remove()
    assert list(node.pod.iterdir()) == []


@pytest.mark.needs("fuse")
def test_mount_of_a_dead_server_is_not_asked(node: Node) -> None:
    dead = DeadFuse(node.volume() / "a")
    try:
        assert node.remove()
        assert list(node.pod.iterdir()) == []
        assert dead.askers == {}
    finally:
        if not mounts.type_at(str(dead.path)):  # `close` unmounts it
            dead.path.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "none", dead.path)
        dead.close()


@pytest.mark.needs("fuse")
def test_dead_server_with_a_mount_below_is_not_detached(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmounting, "UNMOUNT_S", 2.0)
    (node.disk / "inner").mkdir()
    run("mount", "-t", "tmpfs", "inner", node.disk / "inner")
    path = node.pod / f"volumes/{NFS}/v"
    with closing(DeadFuse(path, alive=True, holds="b")) as dead:
        run("mount", "--rbind", node.disk, path / "b")
        dead.leave()
        with pytest.raises(VolumeError, match=f"unmount {path}/b.*: device or resource busy"):
            node.remove()
        assert mounts.type_at(str(node.disk / "inner")) == "tmpfs"
        assert mounts.type_at(str(path)) == "fuse"


def test_link_on_the_way_to_a_mount_is_not_followed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    point = node.volume() / "a/m"
    point.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "left", point)
    (node.disk / "m").mkdir()
    run("mount", "-t", "tmpfs", "own", node.disk / "m")
    table = mounts.mounts_under("/")
    point.parent.rename(point.parent.with_name("moved"))
    point.parent.symlink_to(node.disk)
    monkeypatch.setattr(mounts, "mounts_under", lambda _: table)  # read before the link was made
    assert node.unmount_below()
    monkeypatch.undo()
    assert mounts.type_at(str(node.disk / "m")) == "tmpfs"
    assert node.remove()
    assert mounts.type_at(str(node.disk / "m")) == "tmpfs"


def test_mounts_below_other_volumes_stay(node: Node) -> None:
    """Only the named directory's mounts go: neither those of a volume with a longer name nor another pod's."""
    path = node.volume()
    beside = path.with_name("v-2")
    for one in (path / "a", beside / "a"):
        one.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "left", one)
    assert node.unmount_below()
    assert not node.unmount_below()
    assert node.left() == [str(beside / "a")]
