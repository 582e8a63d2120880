"""Raw block devices of a CSI driver: the kubelet's layout, undoing after every failure, and kills in between."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors._cri.call import go_name
from actors.volume.csi import disk, operations, raw_block, staged
from actors.volume.csi.policy import is_final
from actors.volume.ops import block
from actors.volume.steps.csi import CsiMeasure, CsiMount, CsiUnmount, Secrets, Staged, Volume
from actors.volume.steps.errors import SET_UP_DEVICE_FAILED, VolumeError
from tests.volume.csi.csi_driver import ALL, Driver, Fault, bound
from tests.volume.csi.test_csi_operations import CODES, nothing, plugin, root, unstage
from tests.volume.devices import loop_device, loops_below

__all__ = ["plugin", "root"]  # fixtures

VOLUME = Volume("uid-1", "pv-1", "csi.test", "vol-1", block=True)
OTHER = Volume("uid-2", "pv-1", "csi.test", "vol-1", block=True)
PLACE = "plugins/kubernetes.io/csi/volumeDevices"

pytestmark = pytest.mark.needs("loop devices")


@pytest.fixture
def served(plugin: Driver, tmp_path: Path) -> Iterator[Driver]:
    with loop_device(tmp_path / "disk") as device:
        plugin.devices["vol-1"] = device
        yield plugin


def mount(root: str, driver: Driver, volume: Volume = VOLUME, **fields: Any) -> None:
    operations.mount(root, CsiMount(volume, "v", driver.socket, "node", **fields), nothing)


def unmount(root: str, driver: Driver, volume: Volume = VOLUME) -> None:
    operations.unmount(root, CsiUnmount(volume, driver.socket), nothing)
    unstage(root, driver)


def left(root: str) -> list[str]:
    """Files of volumes on disk, without the directories that all volumes share."""
    shared = {PLACE, f"{PLACE}/staging", f"{PLACE}/publish"}
    found = {str(path.relative_to(root)) for top in ("plugins", "pods") for path in Path(root, top).rglob("*")}
    return sorted(one for one in found if one not in shared and one.startswith((f"{PLACE}/", "pods")) and "pv-1" in one)


def test_device_is_staged_published_linked_and_removed(root: str, served: Driver) -> None:
    mount(root, served, access_modes=("ReadWriteMany",))
    link = Path(root, "pods/uid-1/volumeDevices/kubernetes.io~csi/pv-1")
    target = f"{root}/{PLACE}/publish/pv-1/uid-1"
    assert os.readlink(link) == target
    assert link.is_block_device()
    assert bound(f"{root}/{PLACE}/pv-1/dev/uid-1")
    assert list(loops_below(root).values()) == [f"{root}/{PLACE}/pv-1/dev/uid-1"]
    assert disk.read_data(f"{root}/{PLACE}/pv-1/data")["volumeHandle"] == "vol-1"
    (stage,) = served.of("NodeStageVolume")
    assert stage.staging_target_path == f"{root}/{PLACE}/staging/pv-1"
    assert stage.volume_capability.HasField("block")
    (publish,) = served.of("NodePublishVolume")
    assert (publish.target_path, publish.staging_target_path) == (target, stage.staging_target_path)
    assert disk.find(root, "uid-1") == (VOLUME,)
    assert disk.is_ready(root, VOLUME)
    unmount(root, served)
    assert served.names() == ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]
    assert left(root) == []
    assert loops_below(root) == {}
    unmount(root, served)


def test_shared_device_is_staged_once_and_unstaged_last(root: str, served: Driver) -> None:
    mount(root, served)
    mount(root, served, OTHER)
    unmount(root, served)
    assert served.of("NodeUnstageVolume") == []
    assert disk.find(root, "uid-2") == (OTHER,)
    unmount(root, served, OTHER)
    assert served.names().count("NodeStageVolume") == served.names().count("NodeUnstageVolume") == 1
    assert left(root) == []


def test_failed_unstaging_of_a_device_is_found_again(root: str, served: Driver) -> None:
    mount(root, served)
    served.faults["NodeUnstageVolume"] = Fault("INTERNAL")
    for _ in range(2):
        with pytest.raises(VolumeError, match="was told to fail"):
            unmount(root, served)
        assert disk.find(root, "uid-1") == ()
        assert staged.find(root).volumes == (Staged("csi.test", "vol-1", "pv-1"),)
    with pytest.raises(VolumeError, match=r"is in use by volume vol-1 of driver csi\.test"):
        mount(root, served, Volume("uid-2", "pv-1", "csi.test", "vol-2", block=True))
    served.faults.clear()
    mount(root, served, OTHER)
    assert served.names().count("NodeStageVolume") == 2
    assert staged.unused(root, staged.find(root).volumes) == ()
    unmount(root, served, OTHER)
    assert left(root) == []


NAMESAKE = Volume("uid-2", "pv-1", "csi.test", "vol-2", block=True)
"""A PersistentVolume that was made anew with the same name."""


def test_refused_mount_does_not_block_the_name(root: str, served: Driver) -> None:
    served.devices["vol-2"] = served.devices["vol-1"]
    mount(root, served)
    served.faults["NodeUnstageVolume"] = Fault("INTERNAL")
    with pytest.raises(VolumeError, match="was told to fail"):
        unmount(root, served)
    with pytest.raises(VolumeError, match="is in use by volume vol-1"):
        mount(root, served, NAMESAKE)
    served.faults.clear()
    unstage(root, served)
    assert left(root) == []
    mount(root, served, NAMESAKE)
    unmount(root, served, NAMESAKE)
    assert left(root) == []


class Killed(BaseException):
    """The helper's end."""


@pytest.mark.parametrize("killed_in", ["mount", "unmount without a staging", "unstaging"])
def test_kill_does_not_block_the_name(
    root: str, served: Driver, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    def kill(*_: Any) -> None:
        raise Killed

    served.devices["vol-2"] = served.devices["vol-1"]
    if killed_in == "unmount without a staging":
        served.capabilities = ()
    with monkeypatch.context() as patch:
        if killed_in == "mount":
            patch.setattr(block, "claim", kill)
        else:
            mount(root, served)
            patch.setattr(disk, "remove_place", kill)
        with pytest.raises(Killed):
            (mount if killed_in == "mount" else unmount)(root, served)
    mount(root, served, NAMESAKE)
    assert disk.find(root, "uid-2") == (NAMESAKE,)
    unmount(root, served, NAMESAKE)
    assert left(root) == []


def test_device_record_is_written_by_one_process(root: str, served: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, claim = [], block.claim

    def look(place: str, uid: str) -> str:
        fd = os.open(f"{root}/{PLACE}", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append(uid)
        finally:
            os.close(fd)
        return claim(place, uid)

    monkeypatch.setattr(block, "claim", look)
    mount(root, served)
    unmount(root, served)
    assert locked == ["uid-1"], "until the pod's file is there; it is claimed again when the device is bound"


def test_missing_secrets_fail_only_their_calls(root: str, served: Driver) -> None:
    missing = Secrets(stage_error="no Secret of the staging", expand_error="no Secret of the growth")
    with pytest.raises(VolumeError, match="no Secret of the staging") as caught:
        mount(root, served, secrets=missing)
    assert caught.value.stage == SET_UP_DEVICE_FAILED
    assert (served.names(), left(root)) == ([], [])
    served.capabilities = ALL
    mount(root, served)
    mount(root, served, OTHER, secrets=missing)
    with pytest.raises(VolumeError, match="no Secret of the growth"):
        mount(root, served, secrets=missing, expand_bytes=1 << 30)
    assert served.names().count("NodeStageVolume") == 1
    for volume in (VOLUME, OTHER):
        unmount(root, served, volume)


@pytest.mark.parametrize("rpc", ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"])
@pytest.mark.parametrize("code", CODES)
def test_any_driver_answer_can_be_undone(root: str, served: Driver, rpc: str, code: str) -> None:
    acts = {"NodeStageVolume": mount, "NodePublishVolume": mount}
    stage = {"NodeStageVolume": SET_UP_DEVICE_FAILED, "NodePublishVolume": raw_block.MAP_FAILED}.get(rpc, "")
    for done in (False, True):
        if rpc not in acts:
            mount(root, served)
        served.faults[rpc] = Fault(code, done=done)
        with pytest.raises(VolumeError, match="was told to fail") as caught:
            acts.get(rpc, unmount)(root, served)
        assert caught.value.stage == stage
        served.faults.clear()
        unmount(root, served)
        assert left(root) == []
        assert loops_below(root) == {}


@pytest.mark.parametrize("code", CODES)
def test_staging_without_effect_leaves_nothing_for_the_driver(root: str, served: Driver, code: str) -> None:
    """As in the kubelet. Else the pod's end waits for a driver that may never come again."""
    served.faults["NodeStageVolume"] = Fault(code)
    with pytest.raises(VolumeError, match="was told to fail"):
        mount(root, served)
    if is_final(go_name(code)):
        assert (disk.find(root, "uid-1"), staged.find(root).volumes, left(root)) == ((), (), [])
    else:
        assert disk.find(root, "uid-1") == (VOLUME,)
        assert staged.find(root).volumes == (Staged("csi.test", "vol-1", "pv-1"),)
        unmount(root, served)
    served.faults.clear()
    mount(root, served)
    unmount(root, served)
    assert left(root) == []


@pytest.mark.parametrize("earlier", ["staging", "publication", "of another pod"])
def test_failed_staging_keeps_what_an_earlier_call_may_have_done(root: str, served: Driver, earlier: str) -> None:
    if earlier == "publication":
        served.capabilities = ()
    if earlier == "of another pod":
        mount(root, served)
        disk.unmark(root, VOLUME)  # a kill in a later call
    else:
        served.faults = dict.fromkeys(("NodeStageVolume", "NodePublishVolume"), Fault("UNAVAILABLE", done=True))
        with pytest.raises(VolumeError, match="was told to fail"):
            mount(root, served)
    served.capabilities, served.faults = ALL, {"NodeStageVolume": Fault("INTERNAL")}
    with pytest.raises(VolumeError, match="NodeStageVolume was told to fail"):
        mount(root, served, OTHER if earlier == "of another pod" else VOLUME)
    assert disk.find(root, "uid-1") == (VOLUME,)
    assert len(staged.find(root).volumes) == (earlier != "publication")
    served.faults.clear()
    for volume in (VOLUME, OTHER):
        unmount(root, served, volume)
    assert left(root) == []


def test_driver_without_a_published_device_is_an_error(root: str, served: Driver) -> None:
    served.faults["NodePublishVolume"] = Fault(lie=True)
    with pytest.raises(VolumeError, match="reported the volume as published, but"):
        mount(root, served)
    served.faults.clear()
    served.devices["vol-1"] = str(served.data)
    with pytest.raises((VolumeError, Exception), match=r"is not a block device|Exception calling"):
        mount(root, served)
    unmount(root, served)
    assert left(root) == []


def test_figures_and_growth_are_asked_of_the_device(root: str, served: Driver) -> None:
    served.capabilities = ALL
    mount(root, served, expand_bytes=1 << 30)
    target = f"{root}/{PLACE}/publish/pv-1/uid-1"
    assert served.of("NodeExpandVolume")[0].volume_path == target
    operations.measure(root, CsiMeasure(VOLUME, "v", served.socket), nothing)
    assert served.of("NodeGetVolumeStats")[0].volume_path == target
    unmount(root, served)
