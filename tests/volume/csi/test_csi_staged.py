"""Volumes that a driver has staged: their records, damage of these, and failures to unstage."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from actors.volume.csi import disk, operations, staged
from actors.volume.csi.driver import CallFailed
from actors.volume.drivers import in_use
from actors.volume.steps import places
from actors.volume.steps.csi import CsiUnstage, Staged
from actors.volume.steps.errors import VolumeError
from proto.common.machine.mountinfo import Mount
from tests.volume.csi.csi_driver import Driver, Fault, bound
from tests.volume.csi.test_csi_operations import (
    FAILURES,
    OTHER,
    everything,
    mount,
    nothing,
    plugin,
    root,
    unmount,
    unpublish,
    unstage,
)

__all__ = ["plugin", "root"]  # fixtures

STAGED = Staged("csi.test", "vol-1")
RECORD = {"driverName": "csi.test", "volumeHandle": "vol-1"}


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.needs("mounts")
def test_failed_unstaging_leaves_nothing_in_the_pod(root: str, plugin: Driver, code: str) -> None:
    mount(root, plugin)
    plugin.faults["NodeUnstageVolume"] = Fault(code)
    unpublish(root, plugin)
    assert disk.find(root, "uid-1") == ()
    assert os.listdir(f"{root}/pods/uid-1/volumes/kubernetes.io~csi") == []
    for _ in range(2):
        with pytest.raises(CallFailed):
            unstage(root, plugin)
        assert staged.find(root).volumes == (STAGED,), "after a kill it is found by its record"
    plugin.faults.clear()
    unstage(root, plugin)
    assert everything(root) == []


@pytest.mark.needs("mounts")
def test_volume_that_is_still_staged_is_staged_for_new_pod(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    plugin.faults["NodeUnstageVolume"] = Fault("INTERNAL")
    unpublish(root, plugin)
    with pytest.raises(CallFailed):
        unstage(root, plugin)
    target = mount(root, plugin, OTHER)
    operations.unstage(root, CsiUnstage(STAGED, plugin.socket), nothing)
    assert bound(target), "an attempt that comes late leaves it to the new pod"
    assert plugin.names()[-3:] == ["NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume"]
    plugin.faults.clear()
    unmount(root, plugin, OTHER)
    assert everything(root) == []


@pytest.mark.needs("mounts")
def test_failed_stage_leaves_an_earlier_one_to_be_undone(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    unpublish(root, plugin)
    plugin.faults["NodeStageVolume"] = Fault("INTERNAL")
    with pytest.raises(CallFailed):
        mount(root, plugin, OTHER)
    assert disk.find(root, "uid-2") == (OTHER,), "the end of its pod has the volume unstaged"
    unmount(root, plugin, OTHER)
    assert everything(root) == []


@pytest.mark.needs("mounts")
def test_damaged_staging_record_is_mended_by_the_last_pod(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    Path(places.csi_staging_dir(root, "csi.test", "vol-1"), disk.DATA).write_bytes(b"{")
    assert staged.find(root).volumes == ()
    unpublish(root, plugin)
    assert staged.find(root).volumes == (STAGED,)
    unstage(root, plugin)


@pytest.mark.needs("mounts")
def test_staged_volume_is_unpublished_on_a_full_disk(
    root: str, plugin: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(root, plugin)

    def full(place: str, data: dict[str, str]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)

    monkeypatch.setattr(disk, "write_data", full)
    unmount(root, plugin)
    assert everything(root) == []


@pytest.mark.parametrize("content", [b"{", b'{"driverName": "csi.test"}', None])
@pytest.mark.needs("mounts")
def test_damaged_record_of_a_mounted_staging_is_told(root: str, plugin: Driver, content: bytes | None) -> None:
    mount(root, plugin)
    data = Path(places.csi_staging_dir(root, "csi.test", "vol-1"), disk.DATA)
    if content is None:
        data.unlink()
    else:
        data.write_bytes(content)
    ((), (error,)) = staged.find(root)
    assert str(data.parent) in error
    assert in_use.find(root).lost
    subprocess.run(["umount", data.parent / "globalmount"], check=True)
    assert staged.find(root) == ((), ()), "it is not staged any more"
    unmount(root, plugin)


def test_record_that_cannot_be_read_now_is_told(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write_data(places.csi_staging_dir(root, "csi.test", "vol-1"), RECORD)

    def failing(path: str, limit: int) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(disk, "read_regular", failing)
    ((), (error,)) = staged.find(root)
    assert "Too many open files" in error
    with pytest.raises(VolumeError, match="Too many open files"):
        operations.unstage(root, CsiUnstage(STAGED, ""), nothing)


def test_unstaging_reads_no_other_staging_record(root: str, plugin: Driver, caplog: pytest.LogCaptureFixture) -> None:
    disk.write_data(places.csi_staging_dir(root, "csi.test", "vol-1"), RECORD)
    other = Path(places.csi_staging_dir(root, "csi.test", "vol-2"))
    pods = Path(places.csi_volume_dir(root, "uid-1", "pv-2"))
    for place in (other, pods):
        place.mkdir(parents=True)
        (place / disk.DATA).write_bytes(b"{")
    operations.unstage(root, CsiUnstage(STAGED, plugin.socket), nothing)
    assert (plugin.names(), caplog.messages) == (["NodeUnstageVolume"], [])
    assert (other / disk.DATA).exists()


def test_many_staged_volumes_cost_one_mount_table(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's unreadable record is compared with each of them."""
    asked = [Staged("csi.test", f"vol-{number}") for number in range(100)]
    mount_point = f"{root}/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
    doubt = disk.Unreadable(mount_point, VolumeError("damaged"))
    os.makedirs(f"{root}/pods/uid-1")
    os.makedirs(os.path.dirname(staged.path_of(root, asked[7])))
    table = [
        Mount(1, "0:7", f"{os.path.realpath(root)}/{path.removeprefix(root)[1:]}", False, "ext4", "")
        for path in (mount_point, staged.path_of(root, asked[7]))
    ]
    monkeypatch.setattr(disk, "look", lambda *_: ((), (doubt,)))
    read: list[str] = []
    monkeypatch.setattr(staged.mounts, "mounts_under", lambda path: read.append(path) or table)
    marks: list[None] = []
    unused = staged.unused(root, asked, lambda: marks.append(None))
    assert (len(unused), asked[7] in unused, len(read)) == (99, False, 1)
    assert len(marks) > 100, "a helper that goes on is not killed"


def test_records_elsewhere_are_no_staged_volumes(root: str) -> None:
    place = places.csi_staging_dir(root, "csi.test", "vol-1")
    disk.write_data(place, {"driverName": "csi.test", "volumeHandle": "vol-2"})
    disk.write_data(f"{root}/plugins/kubernetes.io/csi/pv/pv-1", {"driverName": "csi.test", "volumeHandle": "vol-1"})
    assert staged.find(root).volumes == ()
