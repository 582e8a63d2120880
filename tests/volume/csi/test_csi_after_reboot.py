"""CSI volumes after a reboot, or after a start that could not read the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from actors._host.files.mounts import mounts_under
from actors.volume.csi import operations
from actors.volume.reconcile import reconstruct
from actors.volume.steps.csi import CsiMount, CsiUnmount, CsiUnstage, Staged, Volume
from proto.pods.volume import MountPod, UnmountPod
from tests.harness import ActorProcess
from tests.volume.csi.csi_driver import Driver, bound
from tests.volume.csi.test_csi_actor import (
    QUICK,
    UID,
    actor,
    claim,
    in_default,
    new_driver,
    refused,
    registered,
    retry_forbidden,
)
from tests.volume.csi.test_csi_operations import plugin, root
from tests.volume.csi.test_csi_raw import PLACE, mount, unmount
from tests.volume.devices import loop_device, loops_below

__all__ = ["actor", "plugin", "root"]  # fixtures


def reboot(root: str) -> None:
    """Lose all mounts and loop devices; files stay."""
    for device in loops_below(root):
        subprocess.run(["losetup", "-d", device], check=True)
    for one in reversed(mounts_under(root)):
        subprocess.run(["umount", one.mount_point], check=True)


@pytest.mark.needs("loop devices")
def test_raw_device_is_published_anew_after_a_reboot(root: str, plugin: Driver, tmp_path: Path) -> None:
    with loop_device(tmp_path / "disk") as device:
        plugin.devices["vol-1"] = device
        mount(root, plugin)
        link = f"{root}/pods/uid-1/volumeDevices/kubernetes.io~csi/pv-1"
        assert {name: one.path for name, one in reconstruct.find_volumes(root)["uid-1"].items()} == {"v": link}
        assert reconstruct.find_persistent(root) == {"uid-1": {"pv-1"}}
        reboot(root)
        assert os.path.islink(link)
        assert reconstruct.find_persistent(root) == {}
        assert reconstruct.find_volumes(root) == {"uid-1": {}}
        mount(root, plugin)
        assert Path(link).is_block_device()
        assert bound(f"{root}/{PLACE}/pv-1/dev/uid-1")
        assert plugin.names().count("NodeStageVolume") == plugin.names().count("NodePublishVolume") == 2
        assert list(reconstruct.find_volumes(root)["uid-1"]) == ["v"]
        unmount(root, plugin)


@pytest.mark.parametrize("label", ["", "u:r:t:s0:c2"])
@pytest.mark.needs("mounts")
def test_pods_of_one_volume_get_another_label_after_a_reboot(root: str, plugin: Driver, label: str) -> None:
    """SELinux, the feature gate, the CSIDriver or the policy may have changed. Records of both pods are left."""
    pods = Volume("uid-1", "pv-1", "csi.test", "vol-1"), Volume("uid-2", "pv-1", "csi.test", "vol-1")
    steps = [CsiMount(one, "v", plugin.socket, "node", selinux_label="u:r:t:s0:c1") for one in pods]
    for step in steps:
        operations.mount(root, step, lambda _=0: None)
    key = "csi.test", "vol-1"
    assert reconstruct.find_labels(root) == {(one.uid, "v"): (key, "u:r:t:s0:c1") for one in pods}
    reboot(root)
    assert reconstruct.find_labels(root) == {}
    before = len(plugin.names())
    for step in steps:
        operations.mount(root, replace(step, selinux_label=label), lambda _=0: None)
    publish = "NodePublishVolume"
    assert plugin.names()[before:] == [
        *("NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"),
        *("NodeStageVolume", publish, publish),
    ]
    wanted = [[f'context="{label}"']] if label else [[]]
    assert [list(one.volume_capability.mount.mount_flags) for one in plugin.of(publish)[2:]] == wanted * 2
    for one in pods:
        operations.unmount(root, CsiUnmount(one, plugin.socket), lambda _=0: None)
    operations.unstage(root, CsiUnstage(Staged(*key), plugin.socket), lambda _=0: None)


UNREADABLE = """
from actors.volume.reconcile import reconstruct
def find_volumes(root):
    raise OSError(5, "Input/output error")
reconstruct.find_volumes = find_volumes
"""


@pytest.mark.needs("mounts")
def test_volume_is_unpublished_after_a_start_without_the_scan(actor: ActorProcess) -> None:
    driver, spec = new_driver(actor).start(), in_default(claim())
    try:
        registered(actor, driver)
        retry_forbidden(actor, MountPod(pod=spec))
        driver.stop()
        actor.kill()
        actor.prelude = QUICK + UNREADABLE
        actor.start()
        refused(actor, MountPod(pod=spec))
        assert "not found in the list of registered CSI drivers" in refused(actor, UnmountPod(pod_uid=UID))
        driver.start()
        registered(actor, driver)
        retry_forbidden(actor, UnmountPod(pod_uid=UID))
        assert driver.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    finally:
        driver.close()
