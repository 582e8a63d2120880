"""Volumes that a driver mounts with the pod's SELinux label, through the volume process and a real driver.

The machine need not have SELinux: its state is set, and the driver gets the label as a mount flag. It takes no notice.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors._host.files.mounts import mounts_under
from actors.volume.csi import disk
from actors.volume.steps import places
from actors.volume.steps.places import EMPTY_DIR
from proto.pods.events import RecordEvent
from proto.pods.objects import ApiObject, GetObjects, Objects
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import MountPod, UnmountPod
from proto.v1 import ConfigMapVolumeSource, Pod, SELinuxOptions, Volume
from proto.v1.containers.security import PodSecurityContext
from tests.harness import ActorProcess, wait_for
from tests.volume.csi.csi_driver import Driver, Fault, bound
from tests.volume.csi.test_csi_actor import QUICK, claim, in_default, new_driver, refused, registered, retry_forbidden
from tests.volume.test_actor import UID, empty, host

ON = (
    "from actors._host import selinux; selinux.read = lambda: selinux.SELinux("
    "enabled=True, process='system_u:system_r:container_t:s0', file='system_u:object_r:container_file_t:s0')\n"
)
"""The machine has SELinux."""
SECLABEL = (
    "from actors.volume.csi import dispatch; dispatch.has_seclabel = lambda path: path.endswith('/mount'); "
    "from actors.volume.reconcile import reconstruct; reconstruct.SECLABEL = 'rw'\n"
)
"""File systems have a label for each file: their mounts have the option, or one that each mount has."""
A, B = "s0:c1,c2", "s0:c3,c4"
LABEL_A, LABEL_B = (f"system_u:object_r:container_file_t:{level}" for level in (A, B))

DRIVERS: dict[str, dict[str, Any]] = {
    "csi.test": {"attachRequired": False, "seLinuxMount": True, "volumeLifecycleModes": ["Persistent", "Ephemeral"]},
    "csi.plain": {"attachRequired": False},
}
VOLUMES: dict[str, dict[str, Any]] = {
    "once": {"accessModes": ["ReadWriteOncePod"], "csi": {"driver": "csi.test", "volumeHandle": "vol-1"}},
    "many": {"accessModes": ["ReadWriteMany"], "csi": {"driver": "csi.test", "volumeHandle": "vol-2"}},
    "plain": {"accessModes": ["ReadWriteOncePod"], "csi": {"driver": "csi.plain", "volumeHandle": "vol-3"}},
}


def objects(request: GetObjects) -> Objects:
    found, missing = [], []
    for ref in request.refs:
        kinds = {
            "CSIDriver": DRIVERS.get(ref.name),
            "PersistentVolumeClaim": {"volumeName": f"pv-{ref.name}"} if ref.name in VOLUMES else None,
            "PersistentVolume": VOLUMES.get(ref.name.removeprefix("pv-")),
            "ConfigMap": {},
        }
        spec = kinds.get(ref.kind)
        if spec is not None:
            document = {"metadata": {"name": ref.name}, "spec": spec}
            found.append(ApiObject(ref=ref, resource_version="1", document=document))
        elif ref.name:
            missing.append(ref)
    return Objects(found=tuple(found), missing=tuple(missing))


@pytest.fixture
def actor(request: pytest.FixtureRequest) -> Iterator[ActorProcess]:
    more: dict[str, Any] = {"prelude": QUICK + ON, "objects_dir": "/objects", **getattr(request, "param", {})}
    with ActorProcess("volume", None, ("pod_workers", "objects", "events"), **more) as process:
        process.peers["objects"].answers[GetObjects] = objects
        yield process
        assert mounts_under(process.dir) == []


@pytest.fixture
def driver(actor: ActorProcess) -> Iterator[Driver]:
    one = new_driver(actor).start()
    registered(actor, one)
    yield one
    one.close()


def labelled(level: str, *volumes: Volume, uid: str = UID, policy: str | None = None) -> Pod:
    one = in_default(*volumes, uid=uid)
    security = PodSecurityContext(se_linux_options=SELinuxOptions(level=level), se_linux_change_policy=policy)
    return replace(one, spec=replace(one.spec, security_context=security))


def flags(driver: Driver, rpc: str) -> list[list[str]]:
    return [list(one.volume_capability.mount.mount_flags) for one in driver.of(rpc)]


def record(place: str) -> str | None:
    found: str | None = json.loads(Path(place, disk.DATA).read_text()).get("seLinuxMountContext")
    return found


def staging(actor: ActorProcess, handle: str = "vol-1") -> str:
    return places.csi_staging_dir(actor.settings.root_dir, "csi.test", handle)


@pytest.mark.needs("mounts")
def test_volume_for_one_pod_is_mounted_with_the_pods_label(actor: ActorProcess, driver: Driver) -> None:
    mounted = retry_forbidden(actor, MountPod(pod=labelled(A, claim("once"))))
    assert mounted.relabel == ()
    for rpc in ("NodeStageVolume", "NodePublishVolume"):
        assert flags(driver, rpc) == [[f'context="{LABEL_A}"']]
    assert record(staging(actor)) == record(os.path.dirname(mounted.host_paths["v"])) == LABEL_A
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


@pytest.mark.parametrize("policy", [None, "Recursive"])
@pytest.mark.needs("mounts")
def test_other_volumes_get_no_mount_flag(actor: ActorProcess, driver: Driver, policy: str | None) -> None:
    name = "many" if policy is None else "once"
    retry_forbidden(actor, MountPod(pod=labelled(A, claim(name), policy=policy)))
    assert flags(driver, "NodeStageVolume") == flags(driver, "NodePublishVolume") == [[]]
    assert record(staging(actor, "vol-2" if policy is None else "vol-1")) is None
    retry_forbidden(actor, UnmountPod(pod_uid=UID))


@pytest.mark.parametrize("actor", [{"selinux_mount": True}], indirect=True)
@pytest.mark.needs("mounts")
def test_with_the_gate_volumes_of_every_mode_have_a_label(actor: ActorProcess, driver: Driver) -> None:
    for uid in (UID, "other"):
        retry_forbidden(actor, MountPod(pod=labelled(A, claim("many"), uid=uid)))
    assert "conflicting SELinux labels" in refused(actor, MountPod(pod=labelled(B, claim("many"), uid="third")))
    assert flags(driver, "NodePublishVolume") == [[f'context="{LABEL_A}"']] * 2
    for uid in (UID, "other", "third"):
        retry_forbidden(actor, UnmountPod(pod_uid=uid))


@pytest.mark.needs("mounts")
def test_next_pod_gets_the_volume_staged_anew_with_its_label(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=labelled(A, claim("once"))))
    other = MountPod(pod=labelled(B, claim("once"), uid="other"))
    words = f'conflicting SELinux labels of volume pv-once: "{LABEL_A}" and "{LABEL_B}"; pod default/p uses it'
    assert words in refused(actor, other)
    told = wait_for(lambda: actor.peers["events"].of(RecordEvent), 20, "the event about the conflict")[-1]
    assert (told.reason, told.message) == (
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "
        f"failed to process volumes=[v]: {words}",
    )
    before = len(driver.calls)
    # Not `retry_forbidden`: it waits until no unused volume is staged, and the other pod may have it by then.
    assert wait_for(lambda: actor.ask(UnmountPod(pod_uid=UID)), 20, "the first pod's volumes have gone")
    wait_for(lambda: actor.peers["pod_workers"].of(VolumesMounted), 30, "the waiting pod's volume is mounted")
    path = retry_forbidden(actor, other).host_paths["v"]
    calls = [name for name, _ in driver.calls[before:]]
    order = [name for name in calls if name in ("NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume")]
    assert order == ["NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume"]
    assert bound(path)
    assert flags(driver, "NodeStageVolume")[-1] == flags(driver, "NodePublishVolume")[-1] == [f'context="{LABEL_B}"']
    assert record(staging(actor)) == LABEL_B
    retry_forbidden(actor, UnmountPod(pod_uid="other"))


@pytest.mark.needs("mounts")
def test_volume_left_staged_is_unstaged_before_another_label(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=labelled(A, claim("once"))))
    driver.faults["NodeUnstageVolume"] = Fault("INTERNAL")
    actor.ask(UnmountPod(pod_uid=UID))
    wait_for(lambda: driver.of("NodeUnstageVolume"), 20, "the driver refuses to unstage")
    assert record(staging(actor)) == LABEL_A
    refused(actor, MountPod(pod=labelled(B, claim("once"), uid="other")))
    assert len(driver.of("NodeStageVolume")) == 1, "the driver would have to change a mount's label"
    driver.faults.clear()
    retry_forbidden(actor, MountPod(pod=labelled(B, claim("once"), uid="other")))
    assert flags(driver, "NodeStageVolume")[-1] == [f'context="{LABEL_B}"']
    retry_forbidden(actor, UnmountPod(pod_uid="other"))


@pytest.mark.needs("mounts")
def test_label_of_a_mounted_volume_is_known_after_a_kill(actor: ActorProcess, driver: Driver) -> None:
    first, other = labelled(A, claim("once")), labelled(B, claim("once"), uid="other")
    paths = retry_forbidden(actor, MountPod(pod=first)).host_paths
    for asks_again in (False, True):
        actor.restart()
        registered(actor, driver)
        if asks_again:
            assert retry_forbidden(actor, MountPod(pod=first)).host_paths == paths
        assert "conflicting SELinux labels" in refused(actor, MountPod(pod=other))
    assert len(driver.of("NodePublishVolume")) == 1
    retry_forbidden(actor, UnmountPod(pod_uid=UID))
    retry_forbidden(actor, MountPod(pod=other))
    retry_forbidden(actor, UnmountPod(pod_uid="other"))


@pytest.mark.parametrize("actor", [{"selinux_mount": True}], indirect=True)
@pytest.mark.needs("mounts")
def test_labels_of_before_a_reboot_do_not_hold(actor: ActorProcess, driver: Driver) -> None:
    """The policy's label has changed, so neither pod may wait for the other one to leave the volume."""
    pods = [MountPod(pod=labelled(A, claim("many"), uid=uid)) for uid in (UID, "other")]
    for one in pods:
        retry_forbidden(actor, one)
    actor.kill()
    for mount in reversed(mounts_under(actor.dir)):
        subprocess.run(["umount", mount.mount_point], check=True)
    actor.prelude = QUICK + ON.replace("container_file_t", "svirt_sandbox_file_t")
    actor.start()
    registered(actor, driver)
    for one in pods:
        retry_forbidden(actor, one)
    new = LABEL_A.replace("container_file_t", "svirt_sandbox_file_t")
    assert flags(driver, "NodeStageVolume") == [[f'context="{label}"'] for label in (LABEL_A, new)]
    for uid in (UID, "other"):
        retry_forbidden(actor, UnmountPod(pod_uid=uid))


@pytest.mark.parametrize("actor", [{"selinux_mount": True}], indirect=True)
@pytest.mark.needs("mounts")
def test_label_is_free_though_another_volume_is_left(actor: ActorProcess, driver: Driver) -> None:
    retry_forbidden(actor, MountPod(pod=labelled(A, claim("many"), empty("e"))))
    other = MountPod(pod=labelled(B, claim("many"), uid="other"))
    assert "conflicting SELinux labels" in refused(actor, other)
    plugin = Path(actor.settings.root_dir, "pods", UID, "volumes", EMPTY_DIR)
    aside = plugin.rename(Path(actor.dir, "aside"))
    plugin.touch()
    assert "not a directory" in refused(actor, UnmountPod(pod_uid=UID))
    wait_for(lambda: actor.peers["pod_workers"].of(VolumesMounted), 30, "the waiting pod's volume is mounted")
    assert flags(driver, "NodePublishVolume")[-1] == [f'context="{LABEL_B}"']
    plugin.unlink()
    aside.rename(plugin)
    for uid in (UID, "other"):
        retry_forbidden(actor, UnmountPod(pod_uid=uid))


@pytest.mark.parametrize("actor", [{"prelude": QUICK + ON + SECLABEL}], indirect=True)
@pytest.mark.needs("mounts")
def test_runtime_labels_what_the_pod_may_write(actor: ActorProcess, driver: Driver) -> None:
    plain = new_driver(actor, "csi.plain").start()
    registered(actor, plain)
    volumes = (
        empty("empty"),
        Volume(name="config", config_map=ConfigMapVolumeSource(name="m")),
        host("host", actor.dir),
        claim("plain", "plain"),
        claim("many", "read", read_only=True),
        claim("once", "once"),
    )
    spec = labelled(A, *volumes)
    for _ in range(2):
        assert retry_forbidden(actor, MountPod(pod=spec)).relabel == ("config", "empty", "plain")
        actor.restart()
        for one in (driver, plain):
            registered(actor, one)
    retry_forbidden(actor, UnmountPod(pod_uid=UID))
    plain.close()


@pytest.mark.parametrize("actor", [{"prelude": QUICK + SECLABEL}], indirect=True)
def test_without_selinux_nothing_is_labelled(actor: ActorProcess) -> None:
    assert actor.ask(MountPod(pod=labelled(A, empty("e")))).relabel == ()
    actor.ask(UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_directories_of_plugins_are_labelled_at_the_start(actor: ActorProcess) -> None:
    for name in ("plugins", "plugins_registry"):
        path = Path(actor.settings.root_dir, name)
        assert os.getxattr(path, "security.selinux") == b"system_u:object_r:container_file_t:s0"
        assert path.stat().st_mode & 0o777 == 0o750
