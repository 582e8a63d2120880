"""Mounting and unmounting through a real driver over gRPC: calls, arguments, and the state after every failure."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.volume.csi import disk, driver, operations, policy, registration, staged
from actors.volume.csi.driver import CallFailed
from actors.volume.steps import places
from actors.volume.steps.csi import (
    CsiMeasure,
    CsiMount,
    CsiUnmount,
    CsiUnstage,
    FsGroup,
    Register,
    Secrets,
    Volume,
)
from actors.volume.steps.errors import MOUNT_DEVICE_FAILED, VolumeError
from tests.volume.csi.csi_driver import ALL, Driver, Fault, Mute, bound

UNCERTAIN = {"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"}
CODES = (
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
VOLUME = Volume("uid-1", "pv-1", "csi.test", "vol-1")
OTHER = Volume("uid-2", "pv-1", "csi.test", "vol-1")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "root"
    path.mkdir()
    yield str(path)
    left = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line]
    for point in reversed(left):
        subprocess.run(["umount", point], check=True)


@pytest.fixture
def plugin(tmp_path: Path, root: str) -> Iterator[Driver]:
    one = Driver(tmp_path / "registry", tmp_path / "data").start()
    yield one
    one.close()


def nothing(files: int = 0) -> None:
    """Ignores marks of progress."""


def request(plugin: Driver, volume: Volume = VOLUME, **fields: Any) -> CsiMount:
    return CsiMount(volume, "v", plugin.socket, "node", **fields)


def mount(root: str, plugin: Driver, volume: Volume = VOLUME, **fields: Any) -> Path:
    operations.mount(root, request(plugin, volume, **fields), nothing)
    return Path(places.csi_volume_dir(root, volume.uid, volume.spec_name), "mount")


def unpublish(root: str, plugin: Driver, volume: Volume = VOLUME) -> None:
    operations.unmount(root, CsiUnmount(volume, plugin.socket), nothing)


def unstage(root: str, plugin: Driver) -> None:
    """Unstages all that no pod has, as the actor does."""
    for one in staged.unused(root, staged.find(root).volumes):
        operations.unstage(root, CsiUnstage(one, plugin.socket), nothing)


def unmount(root: str, plugin: Driver, volume: Volume = VOLUME) -> None:
    unpublish(root, plugin, volume)
    unstage(root, plugin)


def everything(root: str) -> list[str]:
    """Files of volumes on disk, without the directories of pods and drivers."""
    return sorted(
        str(path.relative_to(root))
        for path in Path(root).rglob("*")
        if path.name in ("mount", "globalmount", "ready", disk.DATA)
    )


@pytest.mark.needs("mounts")
def test_a_volume_is_staged_published_unpublished_and_unstaged(root: str, plugin: Driver) -> None:
    target = mount(root, plugin)
    (target / "file").write_text("x")
    assert (plugin.data / "vol-1/file").read_text() == "x"
    staging = Path(places.csi_staging_dir(root, "csi.test", "vol-1"))
    assert target == Path(root, "pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount")
    assert str(staging).startswith(f"{root}/plugins/kubernetes.io/csi/csi.test/")
    assert json.loads((target.parent / "vol_data.json").read_text()) == {
        "specVolID": "pv-1",
        "volumeHandle": "vol-1",
        "driverName": "csi.test",
        "nodeName": "node",
        "attachmentID": policy.attachment_name("vol-1", "csi.test", "node"),
        "volumeLifecycleMode": "Persistent",
    }
    assert json.loads((staging / "vol_data.json").read_text()) == {"volumeHandle": "vol-1", "driverName": "csi.test"}
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o750
    unmount(root, plugin)
    assert plugin.names() == ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]
    assert everything(root) == []
    assert not staging.exists()
    assert (plugin.data / "vol-1/file").exists()


@pytest.mark.needs("mounts")
def test_shared_volume_is_staged_once_and_unstaged_last(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    mount(root, plugin, OTHER)
    unmount(root, plugin)
    assert bound(Path(places.csi_staging_dir(root, "csi.test", "vol-1"), "globalmount"))
    unmount(root, plugin, OTHER)
    assert plugin.names() == [
        "NodeStageVolume", "NodePublishVolume", "NodePublishVolume",
        "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume",
    ]  # fmt: skip


@pytest.mark.parametrize("code", ["", *CODES])
@pytest.mark.needs("mounts")
def test_refused_growth_does_not_keep_the_volume_from_pods(root: str, plugin: Driver, code: str) -> None:
    growth_failures = dict.fromkeys(("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"), "infeasible")
    plugin.capabilities = ALL
    plugin.faults["NodeExpandVolume"] = Fault(code)
    step = request(plugin, expand_bytes=4096)
    refusal = "Expander.NodeExpand failed to expand the volume : rpc error: code = FailedPrecondition desc = "
    if code in ("", "FAILED_PRECONDITION"):
        grown = operations.mount(root, step, nothing)
        assert grown.result == ("refused" if code else "done")
        assert grown.refusal.startswith(refusal if code else "")
        assert bool(grown.refusal) == bool(code)
        assert disk.is_ready(root, VOLUME)
    else:
        with pytest.raises(VolumeError, match=r"^Expander\.NodeExpand failed to expand the volume ") as caught:
            operations.mount(root, step, nothing)
        assert caught.value.grown == ("uncertain" if code in UNCERTAIN else growth_failures.get(code, "failed"))
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_volume_of_another_pod_keeps_its_selinux_label(root: str, plugin: Driver) -> None:
    target = mount(root, plugin, selinux_label="u:r:t:s0:c1")
    with pytest.raises(VolumeError) as caught:
        mount(root, plugin, OTHER, selinux_label="u:r:t:s0:c2")
    assert (str(caught.value), caught.value.stage) == (
        'waiting for unmount of volume "kubernetes.io/csi/csi.test^vol-1", because it is already mounted '
        "to a different pod with a different SELinux label",
        MOUNT_DEVICE_FAILED,
    )
    assert bound(target)
    assert plugin.names() == ["NodeStageVolume", "NodePublishVolume"]
    assert not os.path.exists(places.csi_volume_dir(root, "uid-2", "pv-1")), "the driver was asked for nothing"
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_own_incomplete_volume_is_mounted_anew_with_its_label(root: str, plugin: Driver) -> None:
    """A kill came before the mark, and the policy's default label has changed since."""
    mount(root, plugin, selinux_label="u:r:t:s0:c1")
    disk.unmark(root, VOLUME)
    before = len(plugin.names())
    assert bound(mount(root, plugin, selinux_label="u:r:t:s0:c2"))
    rpcs = ["NodeUnpublishVolume", "NodeUnstageVolume", "NodeStageVolume", "NodePublishVolume"]
    assert plugin.names()[before:] == rpcs
    unmount(root, plugin)
    assert everything(root) == []


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.needs("mounts")
def test_mount_that_a_pod_may_use_keeps_its_label(root: str, plugin: Driver, damaged: bool) -> None:
    """An actor that cannot read the disk at its start takes the volume for unmounted, and a setting has changed."""
    target = mount(root, plugin, selinux_label="u:r:t:s0:c1")
    place = target.parent
    if damaged:
        (place / disk.DATA).write_text("{")
    mount(root, plugin, selinux_label="u:r:t:s0:c2")
    assert plugin.names() == ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]
    flags = plugin.of("NodePublishVolume")[-1].volume_capability.mount.mount_flags
    assert list(flags) == ['context="u:r:t:s0:c1"']
    assert disk.label_of(str(place)) == "u:r:t:s0:c1"
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_damaged_staging_record_does_not_hold_up_its_own_pod(root: str, plugin: Driver) -> None:
    mount(root, plugin, selinux_label="u:r:t:s0:c1")
    Path(places.csi_staging_dir(root, "csi.test", "vol-1"), disk.DATA).write_text("{")
    mount(root, plugin, selinux_label="u:r:t:s0:c1")
    assert plugin.names() == ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_damaged_staging_record_gets_the_label_back(root: str, plugin: Driver) -> None:
    mount(root, plugin, selinux_label="u:r:t:s0:c1")
    mount(root, plugin, OTHER, selinux_label="u:r:t:s0:c1")
    record = Path(places.csi_staging_dir(root, "csi.test", "vol-1"), disk.DATA)
    record.write_text("{")
    unpublish(root, plugin)
    assert disk.label_of(str(record.parent)) == "u:r:t:s0:c1"
    unmount(root, plugin, OTHER)


@pytest.mark.needs("mounts")
def test_growth_has_no_selinux_label(root: str, plugin: Driver) -> None:
    plugin.capabilities = ALL
    mount(root, plugin, selinux_label="u:r:t:s0:c1,c2", expand_bytes=9, mount_options=("noatime",))
    flags = {
        rpc: [list(one.volume_capability.mount.mount_flags) for one in plugin.of(rpc)]
        for rpc in ("NodePublishVolume", "NodeExpandVolume")
    }
    label = 'context="u:r:t:s0:c1,c2"'
    assert flags == {"NodePublishVolume": [["noatime", label]], "NodeExpandVolume": [["noatime"]]}
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_missing_stage_secret_fails_only_a_mount_that_stages(root: str, plugin: Driver) -> None:
    missing = Secrets(stage_error="no Secret of the staging")
    with pytest.raises(VolumeError, match="no Secret of the staging") as caught:
        mount(root, plugin, secrets=missing)
    assert caught.value.stage == "MountVolume.MountDevice failed"
    assert (plugin.names(), everything(root)) == ([], [])
    mount(root, plugin)
    mount(root, plugin, OTHER, secrets=missing)
    mount(root, plugin, secrets=missing)
    assert plugin.names() == ["NodeStageVolume", *["NodePublishVolume"] * 3]
    for volume in (VOLUME, OTHER):
        unmount(root, plugin, volume)
    plugin.capabilities = ()
    mount(root, plugin, secrets=missing)
    unmount(root, plugin)


@pytest.mark.parametrize("rpc", ["NodeGetCapabilities", "NodeStageVolume", "NodePublishVolume"])
@pytest.mark.needs("mounts")
def test_failed_call_names_the_kubelets_operation(root: str, plugin: Driver, rpc: str) -> None:
    """A volume is staged once (MountDevice), then published to each pod (SetUp, which is not named)."""
    device = "" if rpc == "NodePublishVolume" else MOUNT_DEVICE_FAILED

    def stage(volume: Volume, **fields: Any) -> str:
        plugin.faults[rpc] = Fault("INTERNAL")
        with pytest.raises(CallFailed) as caught:
            mount(root, plugin, volume, **fields)
        plugin.faults.clear()
        return caught.value.stage

    assert stage(VOLUME) == device
    if rpc != "NodeStageVolume":
        assert stage(Volume("uid-3", "v", "csi.test", "inline"), ephemeral=True) == ""
        mount(root, plugin, OTHER)
        assert stage(VOLUME) == "", "another pod has it staged"
        unmount(root, plugin, OTHER)
        unmount(root, plugin, Volume("uid-3", "v", "csi.test", "inline"))
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_missing_expand_secret_fails_only_the_growth(root: str, plugin: Driver) -> None:
    missing = Secrets(expand_error="no Secret of the growth")
    mount(root, plugin, expand_bytes=4096, secrets=missing)
    unmount(root, plugin)
    plugin.capabilities = ALL
    mount(root, plugin, secrets=missing)
    with pytest.raises(VolumeError, match="no Secret of the growth") as caught:
        mount(root, plugin, expand_bytes=4096, secrets=missing)
    assert (caught.value.grown, plugin.of("NodeExpandVolume")) == ("failed", [])
    assert disk.is_ready(root, VOLUME)
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_publication_has_the_volumes_attributes(root: str, plugin: Driver) -> None:
    plugin.capabilities = ALL
    mount(
        root,
        plugin,
        fs_type="ext4",
        access_modes=("ReadWriteOnce",),
        mount_options=("noatime",),
        read_only=True,
        context={"a": "b"},
        pod_info={"csi.storage.k8s.io/pod.name": "p"},
        publish_context={"device": "sda"},
        fs_group=FsGroup(1234),
        expand_bytes=4096,
        secrets=Secrets({"s": "1"}, {"p": "2"}, {"e": "3"}),
    )
    (stage,), (publish,) = plugin.of("NodeStageVolume"), plugin.of("NodePublishVolume")
    (expand,) = plugin.of("NodeExpandVolume")
    for one in (stage, publish, expand):
        capability = one.volume_capability
        assert one.volume_id == "vol-1"
        assert (capability.mount.fs_type, list(capability.mount.mount_flags)) == ("ext4", ["noatime"])
        assert capability.mount.volume_mount_group == ("" if one is expand else "1234")
        assert capability.access_mode.mode == 7, "SINGLE_NODE_MULTI_WRITER"
    assert dict(stage.volume_context) == {"a": "b"}
    assert dict(publish.volume_context) == {"a": "b", "csi.storage.k8s.io/pod.name": "p"}
    assert dict(stage.publish_context) == dict(publish.publish_context) == {"device": "sda"}
    assert (dict(stage.secrets), dict(publish.secrets), dict(expand.secrets)) == ({"s": "1"}, {"p": "2"}, {"e": "3"})
    assert publish.readonly
    assert publish.staging_target_path == stage.staging_target_path
    assert (expand.capacity_range.required_bytes, expand.volume_path) == (4096, publish.target_path)
    assert "'1'" not in repr(Secrets({"s": "1"}))


@pytest.mark.needs("mounts")
def test_an_ephemeral_volume_is_not_staged(root: str, plugin: Driver) -> None:
    target = mount(root, plugin, ephemeral=True)
    assert json.loads((target.parent / "vol_data.json").read_text())["volumeLifecycleMode"] == "Ephemeral"
    unmount(root, plugin)
    assert plugin.names() == ["NodePublishVolume", "NodeUnpublishVolume"]


@pytest.mark.needs("mounts")
def test_ephemeral_volume_may_be_no_directory_of_the_driver(root: str, plugin: Driver) -> None:
    """As with a driver that answers, and mounts nothing: its pod gets an empty directory."""
    plugin.faults["NodePublishVolume"] = Fault(lie=True)
    target = mount(root, plugin, ephemeral=True, republish=True)
    assert target.is_dir()
    plugin.faults["NodePublishVolume"] = Fault("INTERNAL")
    with pytest.raises(CallFailed):
        mount(root, plugin, ephemeral=True, republish=True)
    assert target.is_dir(), "a container may have it"
    unmount(root, plugin)
    assert everything(root) == []


@pytest.mark.parametrize("code", CODES)
@pytest.mark.needs("mounts")
def test_every_code_of_a_publication(root: str, plugin: Driver, code: str) -> None:
    """A publication with unknown outcome is undone; after a certain failure only the staging is left."""
    plugin.faults["NodePublishVolume"] = Fault(code, done=code in UNCERTAIN)
    with pytest.raises(CallFailed, match="was told to fail") as caught:
        mount(root, plugin)
    assert caught.value.final == (code not in UNCERTAIN)
    assert str(caught.value).startswith("rpc error: code = ")
    left = [Path(one).name for one in everything(root)]
    assert ("mount" in left) == (code in UNCERTAIN)
    assert disk.find(root, "uid-1") == (VOLUME,), "it is undone whatever has become of it"
    assert not disk.is_ready(root, VOLUME)
    plugin.faults.clear()
    unmount(root, plugin)
    assert plugin.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    assert everything(root) == []


@pytest.mark.parametrize("code", CODES)
@pytest.mark.needs("mounts")
def test_every_code_of_a_staging(root: str, plugin: Driver, code: str) -> None:
    plugin.faults["NodeStageVolume"] = Fault(code, done=code in UNCERTAIN)
    with pytest.raises(CallFailed):
        mount(root, plugin)
    assert plugin.names() == ["NodeStageVolume"]
    if code not in UNCERTAIN:
        assert everything(root) == []
        return
    assert disk.find(root, "uid-1") == (VOLUME,)
    plugin.faults.clear()
    unmount(root, plugin)
    assert plugin.names()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    assert everything(root) == []


FAILURES = ["NOT_FOUND", "INTERNAL", "UNAVAILABLE", "FAILED_PRECONDITION"]


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.needs("mounts")
def test_failed_unpublication_is_retried(root: str, plugin: Driver, code: str) -> None:
    mount(root, plugin)
    plugin.faults["NodeUnpublishVolume"] = Fault(code)
    for _ in range(2):
        with pytest.raises(CallFailed):
            unmount(root, plugin)
        assert disk.find(root, "uid-1") == (VOLUME,)
        assert not disk.is_ready(root, VOLUME)
    plugin.faults.clear()
    unmount(root, plugin)
    assert everything(root) == []


@pytest.mark.needs("mounts")
def test_another_volume_of_the_same_name_is_refused(root: str, plugin: Driver) -> None:
    target = mount(root, plugin)
    before = everything(root)
    for other in (Volume("uid-1", "pv-1", "csi.test", "vol-2"), Volume("uid-1", "pv-1", "csi.other", "vol-1")):
        with pytest.raises(VolumeError, match=r"is in use by volume vol-1 of driver csi\.test"):
            mount(root, plugin, other)
    assert (disk.find(root, "uid-1"), everything(root), bound(target)) == ((VOLUME,), before, True)
    unmount(root, plugin)


@pytest.mark.parametrize(
    ("rpc", "words"),
    [
        ("NodePublishVolume", "reported the volume as published, but "),
        ("NodeUnpublishVolume", "reported the volume as unpublished, but it is still mounted"),
        ("NodeUnstageVolume", "reported the volume as unstaged, but it is still mounted"),
    ],
)
@pytest.mark.needs("mounts")
def test_driver_that_reports_a_false_success_is_an_error(root: str, plugin: Driver, rpc: str, words: str) -> None:
    plugin.faults[rpc] = Fault(lie=True)
    if rpc == "NodePublishVolume":
        with pytest.raises(VolumeError, match=words):
            mount(root, plugin)
    else:
        target = mount(root, plugin)
        (target / "file").write_text("x")
        with pytest.raises(VolumeError, match=words):
            unmount(root, plugin)
        assert (plugin.data / "vol-1/file").exists()
    plugin.faults.clear()
    unmount(root, plugin)
    assert everything(root) == []


@pytest.mark.needs("mounts")
def test_a_call_that_is_not_answered_ends_with_its_deadline(
    root: str, plugin: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.Plugin.node, "__defaults__", (3.0,))
    monkeypatch.setattr(driver, "MARK_S", 0.1)
    plugin.faults["NodePublishVolume"] = Fault(hang=True)
    marks = []
    with pytest.raises(CallFailed, match="DeadlineExceeded"):
        operations.mount(root, request(plugin), lambda: marks.append(1))
    assert len(marks) > 5, "the helper is seen to be alive"
    assert disk.find(root, "uid-1") == (VOLUME,)


@pytest.mark.needs("mounts")
def test_a_driver_without_socket_is_named(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    with pytest.raises(VolumeError, match=r"driver name csi\.test not found in the list of registered CSI drivers"):
        operations.unmount(root, CsiUnmount(VOLUME, ""), nothing)
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_publishing_again_keeps_what_is_there_when_it_fails(root: str, plugin: Driver) -> None:
    target = mount(root, plugin, republish=True)
    plugin.faults["NodePublishVolume"] = Fault("INTERNAL")
    with pytest.raises(CallFailed):
        mount(root, plugin, republish=True)
    assert bound(target)
    assert disk.is_ready(root, VOLUME)
    unmount(root, plugin)


@pytest.mark.parametrize(
    ("driver_policy", "fs_type", "modes", "read_only", "given"),
    [
        ("ReadWriteOnceWithFSType", "ext4", ("ReadWriteOnce",), False, True),
        ("ReadWriteOnceWithFSType", "ext4", ("ReadWriteOncePod",), False, True),
        ("ReadWriteOnceWithFSType", "", ("ReadWriteOnce",), False, False),
        ("ReadWriteOnceWithFSType", "ext4", ("ReadWriteMany",), False, False),
        ("File", "", ("ReadWriteMany",), False, True),
        ("File", "", ("ReadWriteMany",), True, False),
        ("None", "ext4", ("ReadWriteOnce",), False, False),
    ],
)
@pytest.mark.needs("mounts")
def test_fs_group_policy_decides_about_ownership(
    root: str, plugin: Driver, driver_policy: str, fs_type: str, modes: tuple[str, ...], read_only: bool, given: bool
) -> None:
    wish = FsGroup(4321, driver_policy=driver_policy)
    target = mount(root, plugin, fs_group=wish, fs_type=fs_type, access_modes=modes, read_only=read_only)
    assert (target.stat().st_gid == 4321) == given
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_volume_whose_files_refuse_their_group_is_mounted(
    root: str, plugin: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a driver that publishes a volume read-only by itself."""
    source = plugin.data / "vol-1"
    source.mkdir(parents=True)
    (source / "file").touch()
    subprocess.run(["mount", "--bind", source, source], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", source], check=True)
    target = mount(root, plugin, fs_group=FsGroup(4321, driver_policy="File"))
    assert disk.is_ready(root, VOLUME)
    assert (target / "file").stat().st_gid == 0
    (line,) = caplog.messages
    assert f"{target} to the fsGroup: chown or chmod failed 4 times, first: chown {target}/file: read-only" in line
    unmount(root, plugin)


@pytest.mark.needs("mounts")
def test_figures_come_from_the_driver(root: str, plugin: Driver) -> None:
    mount(root, plugin)
    step = CsiMeasure(VOLUME, "v", plugin.socket)
    assert operations.measure(root, step, nothing) is None
    plugin.capabilities = ALL
    usage = operations.measure(root, step, nothing)
    assert usage is not None
    assert (usage.capacity_bytes, usage.used_bytes, usage.available_bytes) == (1000, 600, 400)
    assert (usage.inodes, usage.inodes_used, usage.inodes_free, usage.name) == (100, 60, 40, "v")
    unmount(root, plugin)


# Registration


def meet(plugin: Driver, **highest: str) -> Any:
    return registration.register(Register(plugin.socket, highest), nothing)


def test_driver_is_registered_and_notified(plugin: Driver) -> None:
    plugin.versions = ("1.0.0", "v1.3.0", "2.0.0")
    info = meet(plugin)
    assert (info.name, info.endpoint, info.version, info.node_id) == ("csi.test", plugin.socket, "v1.3.0", "node-1")
    assert (info.max_volumes, info.topology) == (7, {"topology.test/zone": "a"})
    (status,) = plugin.of("NotifyRegistrationStatus")
    assert (status.plugin_registered, status.error) == (True, "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "Strange"}, "no handler registered for plugin type: Strange at socket "),
        ({"versions": ()}, "CSI driver reporting empty array for supported versions"),
        ({"versions": ("0.3.0", "2.0.0")}, "could not find a highest supported version from versions (0.3.0 2.0.0)"),
        ({"name": "../x"}, "is not one of a driver"),
        ({"faults": {"NodeGetInfo": Fault("INTERNAL")}}, "plugin registration failed with err: rpc error: code = Int"),
        ({"faults": {"NodeGetInfo": Fault(lie=True)}}, "node ID is empty"),
    ],
)
def test_refused_plugin_is_notified_with_the_reason(plugin: Driver, changes: dict[str, Any], words: str) -> None:
    socket = plugin.socket
    for key, value in changes.items():
        setattr(plugin, key, value)
    with pytest.raises(VolumeError) as caught:
        registration.register(Register(socket), nothing)
    assert words in str(caught.value)
    (status,) = plugin.of("NotifyRegistrationStatus")
    assert not status.plugin_registered
    assert words in status.error


@pytest.mark.parametrize("fault", [Fault("UNIMPLEMENTED"), Fault(hang=True)])
def test_driver_that_takes_no_notification_is_registered(
    plugin: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    monkeypatch.setattr(registration, "MEET_S", 3.0)
    plugin.faults["NotifyRegistrationStatus"] = fault
    assert meet(plugin).name == "csi.test"
    (line,) = caplog.messages
    assert line.startswith(f"the CSI driver at {plugin.socket} is registered, and cannot be told so: rpc error: ")


def test_refused_driver_that_takes_no_notification_is_refused(plugin: Driver) -> None:
    plugin.kind, plugin.faults["NotifyRegistrationStatus"] = "Strange", Fault("UNIMPLEMENTED")
    with pytest.raises(VolumeError, match="no handler registered for plugin type: Strange"):
        meet(plugin)


def test_only_a_newer_driver_displaces_another_one(plugin: Driver) -> None:
    with pytest.raises(VolumeError, match=r'already registered with a higher supported version: "1\.4\.0"'):
        meet(plugin, **{"csi.test": "1.4.0"})
    with pytest.raises(VolumeError, match=r'already registered with a higher supported version: "1\.0\.0"'):
        meet(plugin, **{"csi.test": "v1.0.0"})
    assert meet(plugin, **{"csi.test": "0.9.0", "csi.other": "1.4.0"}).version == "1.0.0"


def test_silent_socket_fails_after_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MEET_S", 0.5)
    mute = Mute(tmp_path / "mute.sock")
    try:
        with pytest.raises(VolumeError, match=r"DeadlineExceeded|Unavailable"):
            registration.register(Register(str(tmp_path / "mute.sock")), nothing)
    finally:
        mute.close()


def test_steps_survive_encoding() -> None:
    step = CsiMount(VOLUME, "v", "/s", "n", secrets=Secrets({"k": "v"}), fs_group=FsGroup(1))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=CsiMount) == step
    assert os.path.basename(places.csi_staging_dir("/r", "d", "h")) != "h"
