"""Records of CSI volumes that cannot be read: they hold up their own volume only, and go once it is not mounted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from actors.volume.csi import disk, staged, unreadable
from actors.volume.drivers import in_use
from actors.volume.steps import places
from actors.volume.steps.csi import Staged, Volume
from actors.volume.steps.errors import VolumeError
from proto.pods.volume import MountPod, UnmountPod
from tests.harness import ActorProcess
from tests.volume.csi.csi_driver import Driver
from tests.volume.csi.test_csi_actor import (
    UID,
    actor,
    claim,
    in_default,
    new_driver,
    registered,
    retry_forbidden,
)
from tests.volume.csi.test_csi_after_reboot import reboot
from tests.volume.csi.test_csi_operations import plugin, root
from tests.volume.csi.test_csi_raw import left
from tests.volume.csi.test_csi_raw import mount as mount_raw
from tests.volume.devices import loop_device

__all__ = ["actor", "plugin", "root"]  # fixtures

VOLUME = Volume("uid-1", "pv-1", "csi.test", "vol-1")
OTHER = Volume("uid-2", "pv-1", "csi.test", "vol-1")
CONTENTS = [b"", b"{", b"\0" * 100, b'"text', b"{}"]


def ignore(name: str) -> None:
    """Ignores marks of progress."""


def record(root: str, uid: str, content: bytes, name: str = "pv-1") -> Path:
    place = Path(root, "pods", uid, "volumes/kubernetes.io~csi", name)
    (place / "mount").mkdir(parents=True)
    (place / disk.DATA).write_bytes(content)
    return place


GOOD = b'{"specVolID": "pv-1", "driverName": "csi.test", "volumeHandle": "vol-1"}'


@pytest.mark.parametrize("content", CONTENTS)
def test_unreadable_record_does_not_hide_other_volumes(root: str, content: bytes) -> None:
    record(root, "uid-1", GOOD)
    record(root, "uid-1", content, "bad")
    record(root, "uid-2", GOOD)
    assert disk.find(root, "uid-1") == (VOLUME,)
    assert disk.users(root, OTHER) == [VOLUME], "the other record of the same pod counts"
    name = "kubernetes.io/csi/csi.test^vol-1"
    unreadable.drop(root, "uid-1", ignore)
    assert os.listdir(f"{root}/pods/uid-1/volumes/kubernetes.io~csi") == ["pv-1"]
    assert in_use.find(root) == ({"uid-1": {name}, "uid-2": {name}}, frozenset(), frozenset(), False)


@pytest.mark.needs("mounts")
def test_unreadable_record_of_a_mounted_volume_keeps_its_pod(root: str) -> None:
    place = record(root, "uid-1", b"")
    subprocess.run(["mount", "-t", "tmpfs", "none", place / "mount"], check=True)
    with pytest.raises(VolumeError, match="failed to open volume data file"):
        disk.find(root, "uid-1")
    assert disk.users(root, OTHER) == []
    assert in_use.find(root) == ({}, frozenset(), {"uid-1"}, False)
    unreadable.drop(root, "uid-1", ignore)
    assert (place / disk.DATA).exists()
    subprocess.run(["umount", place / "mount"], check=True)
    unreadable.drop(root, "uid-1", ignore)
    assert not place.exists()


@pytest.mark.needs("mounts")
def test_unreadable_record_may_be_of_volumes_on_its_device(root: str) -> None:
    first, second = Staged("csi.test", "vol-1"), Staged("csi.other", "vol-1")
    for one in (first, second):
        disk.write_data(
            places.csi_staging_dir(root, one.driver, one.handle), {"driverName": one.driver, "volumeHandle": "vol-1"}
        )
        point = staged.path_of(root, one)
        os.mkdir(point)
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    unused = lambda: set(staged.unused(root, staged.find(root).volumes))  # noqa: E731
    place = record(root, "uid-1", b"{")
    assert unused() == {first, second}, "it is not mounted"
    subprocess.run(["mount", "--bind", staged.path_of(root, first), place / "mount"], check=True)
    assert unused() == {second}
    subprocess.run(["umount", place / "mount"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", place / "mount"], check=True)
    assert unused() == set(), "it may be any"


@pytest.mark.needs("mounts")
def test_unreadable_record_is_written_anew_by_its_pod(actor: ActorProcess) -> None:
    driver = new_driver(actor).start()
    try:
        registered(actor, driver)
        for uid in (UID, "other"):
            retry_forbidden(actor, MountPod(pod=in_default(claim(), uid=uid)))
        data = Path(actor.settings.root_dir, "pods", UID, "volumes/kubernetes.io~csi/pv-1", disk.DATA)
        data.write_bytes(b"{")
        actor.restart()
        registered(actor, driver)
        retry_forbidden(actor, UnmountPod(pod_uid="other"))
        retry_forbidden(actor, MountPod(pod=in_default(claim(), uid="new")))
        retry_forbidden(actor, UnmountPod(pod_uid="new"))
        assert driver.of("NodeUnstageVolume") == []
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        assert disk.read_data(str(data.parent))["volumeHandle"] == "vol-1"
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
        assert driver.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    finally:
        driver.close()


def test_content_below_an_unreadable_record_is_not_deleted(root: str) -> None:
    place = record(root, "uid-1", b"")
    (place / "mount/precious").touch()
    with pytest.raises(VolumeError, match="failed to clean up"):
        unreadable.drop(root, "uid-1", ignore)
    assert (place / "mount/precious").exists()
    assert (place / disk.DATA).exists()


def test_record_of_a_machine_without_descriptors_stays(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = record(root, "uid-1", GOOD)

    def failing(path: str, limit: int) -> bytes:
        raise OSError(24, os.strerror(24), path)

    monkeypatch.setattr(disk, "read_regular", failing)
    unreadable.drop(root, "uid-1", ignore)
    assert (place / disk.DATA).read_bytes() == GOOD


@pytest.mark.needs("loop devices")
def test_unreadable_record_of_a_raw_device_goes(root: str, plugin: Driver, tmp_path: Path) -> None:
    with loop_device(tmp_path / "disk") as device:
        plugin.devices["vol-1"] = device
        mount_raw(root, plugin)
        data = Path(root, "plugins/kubernetes.io/csi/volumeDevices/pv-1/data", disk.DATA)
        data.write_bytes(b"")
        with pytest.raises(VolumeError, match="failed to open volume data file"):
            disk.find(root, "uid-1")
        unreadable.drop(root, "uid-1", ignore)
        assert data.exists()
        reboot(root)
        assert disk.find(root, "uid-1") == ()
        unreadable.drop(root, "uid-1", ignore)
        assert not data.exists()
        assert [one for one in left(root) if "staging" not in one] == []


@pytest.mark.needs("mounts")
def test_volumes_come_and_go_beside_an_unreadable_record(actor: ActorProcess) -> None:
    driver = new_driver(actor).start()
    try:
        registered(actor, driver)
        retry_forbidden(actor, MountPod(pod=in_default(claim())))
        place = record(actor.settings.root_dir, "dead-pod", b"")
        ready = Path(actor.settings.root_dir, "pods/dead-pod/plugins/kubernetes.io~csi/pv-1/ready")
        ready.parent.mkdir(parents=True)
        ready.touch()
        retry_forbidden(actor, MountPod(pod=in_default(claim(), uid="new-pod")))
        for uid in (UID, "new-pod"):
            retry_forbidden(actor, UnmountPod(pod_uid=uid))
        assert driver.names()[-1] == "NodeUnstageVolume"
        assert place.exists()
        actor.restart()
        actor.ask(UnmountPod(pod_uid="dead-pod"))
        assert list(Path(actor.settings.root_dir, "pods/dead-pod").iterdir()) == []
    finally:
        driver.close()
