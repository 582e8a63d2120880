"""Unmounting a server's volume, also of a dead server: plainly, then by force, then detached."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._host.files import mounts
from actors.volume.ops import unmounting
from actors.volume.steps.errors import VolumeError
from actors.volume.steps.places import LOCAL_VOLUME, NFS

PLAIN, FORCE, DETACH = 0, mounts.MNT_FORCE, mounts.MNT_DETACH
REAL = mounts.unmount


class Server:
    """A mount in place of an NFS export, with replaced results of unmount calls."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path / "v", path / "tried"
        self.path.mkdir()
        self.hangs: set[int] = set()
        self.fails: dict[int, int] = {}
        mounts.mount("t", str(self.path), "tmpfs", "size=1m")

    def unmount(self, target: str, flags: int = 0) -> None:
        with self.log.open("a") as log:
            log.write(f"{flags}\n")
        if flags in self.hangs:
            time.sleep(600)
        if flags in self.fails:
            raise OSError(self.fails[flags], os.strerror(self.fails[flags]), target)
        REAL(target, flags)

    def remove(self, plugin: str = NFS) -> list[int]:
        """Remove the volume; returns the unmount flags that were tried."""
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            unmounting.remove(directory, plugin, "v", str(self.path), bool)
        finally:
            os.close(directory)
        return self.tried()

    def tried(self) -> list[int]:
        return [int(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    one = Server(tmp_path)
    monkeypatch.setattr(mounts, "unmount", one.unmount)
    monkeypatch.setattr(unmounting, "UNMOUNT_S", 3.0)
    yield one
    while mounts.type_at(str(one.path)):
        REAL(str(one.path), DETACH)


@pytest.mark.needs("mounts")
def test_answering_server_is_unmounted_plainly(server: Server) -> None:
    assert server.remove() == [PLAIN]
    assert not server.path.exists()


@pytest.mark.needs("mounts")
def test_dead_server_is_unmounted_by_force(server: Server) -> None:
    server.hangs = {PLAIN}
    assert server.remove() == [PLAIN, FORCE]
    assert not server.path.exists()


@pytest.mark.parametrize("busy", [False, True], ids=["force hangs", "force is refused"])
@pytest.mark.needs("mounts")
def test_mount_that_survives_force_is_detached(server: Server, busy: bool) -> None:
    server.hangs = {PLAIN} if busy else {PLAIN, FORCE}
    with (server.path / "open").open("w"):  # so that force really finds it busy
        assert server.remove() == [PLAIN, FORCE, DETACH]
    assert not server.path.exists()


@pytest.mark.needs("mounts")
def test_busy_mount_of_an_answering_server_stays(server: Server) -> None:
    with (server.path / "open").open("w"), pytest.raises(VolumeError, match="device or resource busy"):
        server.remove()
    assert server.tried() == [PLAIN]
    assert server.path.is_dir()


@pytest.mark.needs("mounts")
def test_error_of_a_forced_unmount_is_reported(server: Server) -> None:
    server.hangs, server.fails = {PLAIN}, {FORCE: errno.EIO}
    with pytest.raises(VolumeError, match="input/output error"):
        server.remove()


@pytest.mark.needs("mounts")
def test_a_disk_of_the_node_is_never_left_by_force(server: Server) -> None:
    server.hangs = {PLAIN}
    with pytest.raises(VolumeError, match="did not return in"):
        server.remove(LOCAL_VOLUME)
    assert server.tried() == [PLAIN]
