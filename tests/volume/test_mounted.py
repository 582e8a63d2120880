"""Volumes whose data outlives the pod, on real directories and disks: mounting, sharing and release."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors._host.files.mounts import mounts_under
from actors.volume.helper.dedicated import EACH
from proto.agent.actor import Describe
from proto.pods.events import RecordEvent
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import GetVolumeUsages, MountPod, UnmountPod, VolumeUsage
from proto.v1 import Container, NFSVolumeSource, ObjectMeta, Pod, Volume
from proto.v1.containers.container import VolumeDevice
from proto.v1.containers.security import PodSecurityContext
from proto.v1.volumes.volume import PersistentVolumeClaimVolumeSource
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, actor_process, wait_for
from tests.volume.devices import loop_device, loops_below, nfs_client
from tests.volume.test_actor import pod

SLOW = """
import time
from actors.volume.helper import pool as p
p.OWNING_S, p.OWNING_AGAIN_S = 0.3, 1.0
assign = p.Pool._assign
def look_often(self, one, job):
    if one.job is job:
        self._look_at_owning(one, job)
        self._actor.after(0.5, look_often, self, one, job)
def assign_and_look(self, one, job):
    assign(self, one, job)
    self._actor.after(0.5, look_often, self, one, job)
p.Pool._assign = assign_and_look
from actors.volume.ops import ownership as o
set_file = o._set_file
o._set_file = lambda *a, **k: (time.sleep(0.05), set_file(*a, **k))
"""
"""Each file takes 50 ms to get its group, and that is long. It is looked at more often than each CALL_S, which is the
real one: a helper on a busy machine may pause for a second."""
WHOLE_SCAN = "from actors.volume import actor; actor.SCAN_S = 60.0\n"
"""Gives a slow machine the time to read the disk at the start."""
ASKED_S = 30.0
"""For answers that take a file system to be made, or several helpers, of which some are niced."""
A, B = "aaaaaaaa-1111-2222-3333-444444444444", "bbbbbbbb-1111-2222-3333-444444444444"


@pytest.fixture
def actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ActorProcess]:
    """With the real deadlines: a file system is made in one step, which takes seconds on a slow disk."""
    monkeypatch.setenv("PATH", nfs_client(tmp_path / "bin"))
    with started() as process:
        yield process


@pytest.fixture
def slow() -> Iterator[ActorProcess]:
    with started(SLOW) as process:
        yield process


@contextmanager
def started(prelude: str = "") -> Iterator[ActorProcess]:
    prelude = WHOLE_SCAN + prelude
    with actor_process("volume", peers=("pod_workers", "objects", "events"), prelude=prelude) as process:
        os.makedirs(process.settings.root_dir, exist_ok=True)
        try:
            yield process
        finally:
            left = mounts_under(process.dir)
            for mount in reversed(left):
                subprocess.run(["umount", mount.mount_point], check=True)
    assert left == [], "every mount is gone when the pods are"


def serve(actor: ActorProcess, *documents: dict[str, Any]) -> None:
    """Serve these objects."""
    objects = {}
    for one in documents:
        namespace = "default" if one["kind"] == "PersistentVolumeClaim" else ""
        ref = ObjectRef(kind=one["kind"], namespace=namespace, name=one["metadata"]["name"])
        objects[ref] = ApiObject(ref=ref, resource_version="1", document=one)

    def answer(request: GetObjects) -> Objects:
        wanted = [ref for ref in objects if ref in request.refs or ObjectRef(kind=ref.kind) in request.refs]
        return Objects(found=tuple(objects[ref] for ref in wanted))

    actor.peers["objects"].answers[GetObjects] = answer


def claimed(**spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The claim `data` and its volume."""
    by = {"namespace": "default", "name": "data"}
    return (
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {}},
        {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"claimRef": by, **spec}},
    )


def user(uid: str = A, *, read_only: bool = False, **spec: Any) -> Pod:
    source = PersistentVolumeClaimVolumeSource(claim_name="data", read_only=read_only)
    made = pod(Volume(name="v", persistent_volume_claim=source), uid=uid, **spec)
    return msgspec.structs.replace(made, metadata=ObjectMeta(uid=uid, namespace="default", name=uid[:1]))


def events(actor: ActorProcess, reason: str) -> list[RecordEvent]:
    return [one for one in actor.peers["events"].of(RecordEvent) if one.reason == reason]


def mount(actor: ActorProcess, spec: Pod) -> Path:
    path = Path(actor.ask(MountPod(pod=spec), ASKED_S).host_paths["v"])
    assert open_to_others(Path(actor.settings.root_dir)) == []
    return path


def open_to_others(root: Path) -> list[str]:
    """World-writable directories around volumes: a writer can have something else mounted over them."""
    found = [path for deep in range(1, 5) for top in ("pods", "plugins") for path in root.glob(f"{top}{'/*' * deep}")]
    around = [path for path in found if "volumes" not in path.parts[:-2] and path.is_dir()]
    return [str(path) for path in (root / "pods", root / "plugins", *around) if path.exists() and writable(path)]


def writable(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o022)


def refused(actor: ActorProcess, spec: Pod) -> str:
    with pytest.raises(Refused) as caught:
        actor.ask(MountPod(pod=spec))
    return caught.value.message


def mounted(actor: ActorProcess) -> list[str]:
    """Mount points below the root directory."""
    root = os.path.realpath(actor.settings.root_dir)
    return [one.mount_point.removeprefix(f"{root}/") for one in mounts_under(root)]


def of_pod(uid: str) -> str:
    return f"pods/{uid}/volumes/kubernetes.io~local-volume/pv"


GLOBAL = "plugins/kubernetes.io/local-volume/mounts/pv"


@pytest.mark.needs("mounts")
def test_two_pods_share_a_directory_of_the_node(actor: ActorProcess, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "before").write_text("x")
    serve(actor, *claimed(local={"path": str(shared)}))
    group = PodSecurityContext(fs_group=4321)
    for _ in range(2):
        path = mount(actor, user(A, security_context=group))
    assert str(path).endswith(of_pod(A))
    assert (path / "before").stat().st_gid == 4321
    (path / "mine").write_text("a")
    theirs = mount(actor, user(B, read_only=True))
    assert (theirs / "mine").read_text() == "a"
    with pytest.raises(OSError, match="Read-only file system"):
        (theirs / "no").write_text("b")
    assert actor.ask(UnmountPod(pod_uid=A)) == Done()
    assert mounted(actor) == [of_pod(B)]
    assert actor.ask(UnmountPod(pod_uid=B)) == Done()
    assert sorted(one.name for one in shared.iterdir()) == ["before", "mine"]
    assert mounted(actor) == []


@pytest.mark.needs("mounts")
def test_directory_that_refuses_its_group_is_mounted(actor: ActorProcess, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("x")
    subprocess.run(["mount", "--bind", shared, shared], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", shared], check=True)
        serve(actor, *claimed(local={"path": str(shared)}))
        path = mount(actor, user(A, security_context=PodSecurityContext(fs_group=4321)))
        assert (path / "file").read_text() == "x"
        assert path.stat().st_gid == 0
        actor.ask(UnmountPod(pod_uid=A))
    finally:
        subprocess.run(["umount", shared], check=True)


@pytest.mark.needs("mounts")
def test_a_volume_for_one_pod_is_refused_to_the_next(actor: ActorProcess, tmp_path: Path) -> None:
    serve(actor, *claimed(local={"path": str(tmp_path)}, accessModes=["ReadWriteOncePod"]))
    mount(actor, user(A))
    text = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    assert refused(actor, user(B)) == f'MountVolume.SetUp failed for volume "pv" : {text}'
    actor.restart()
    assert text in refused(actor, user(B)), "what the disk shows counts, before the pod itself is known again"
    actor.ask(UnmountPod(pod_uid=A))
    wait_for(lambda: actor.peers["pod_workers"].of(VolumesMounted), what="it is tried again when it is free")
    mount(actor, user(B))
    actor.ask(UnmountPod(pod_uid=B))


@pytest.mark.needs("mounts")
def test_a_claim_that_is_deleted_serves_its_pod_after_a_kill(actor: ActorProcess, tmp_path: Path) -> None:
    data, volume = claimed(local={"path": str(tmp_path)})
    serve(actor, data, volume)
    path = mount(actor, user(A))
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
    serve(actor, {**data, "metadata": {**data["metadata"], **deleted}}, volume)
    actor.restart()
    assert mount(actor, user(A)) == path
    actor.ask(UnmountPod(pod_uid=A))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """An empty disk."""
    with loop_device(tmp_path / "disk") as device:
        yield device


@pytest.mark.needs("loop devices")
def test_disk_is_formatted_once_and_mounted_while_used(actor: ActorProcess, disk: str) -> None:
    serve(actor, *claimed(local={"path": disk, "fsType": "ext4"}))
    path = mount(actor, user(A))
    (path / "kept").write_text("a")
    assert mounted(actor) == [GLOBAL, of_pod(A)]
    assert (mount(actor, user(B)) / "kept").read_text() == "a"
    actor.ask(UnmountPod(pod_uid=A))
    assert sorted(mounted(actor)) == sorted([GLOBAL, of_pod(B)])
    actor.ask(UnmountPod(pod_uid=B))
    wait_for(lambda: mounted(actor) == [], what="no pod has it, so the disk is unmounted")
    assert (mount(actor, user(A)) / "kept").read_text() == "a"
    actor.restart()
    assert sorted(mounted(actor)) == sorted([GLOBAL, of_pod(A)]), "a disk in use stays"
    assert (mount(actor, user(A)) / "kept").read_text() == "a"
    actor.ask(UnmountPod(pod_uid=A))
    wait_for(lambda: mounted(actor) == [], what="the disk is unmounted")


@pytest.mark.needs("mounts")
def test_slow_change_of_ownership_is_an_event(slow: ActorProcess, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for number in range(80):
        (shared / str(number)).touch()
    serve(slow, *claimed(local={"path": str(shared)}))
    mount(slow, user(A, security_context=PodSecurityContext(fs_group=4321)))
    said = [(one.involved.uid, one.type, one.message) for one in events(slow, "VolumePermissionChangeInProgress")]
    what = f"Setting volume ownership for {A}/volumes/kubernetes.io~local-volume/pv"
    assert {one[:2] for one in said} == {(A, "Warning")}
    assert said[0][2].startswith(f"{what} is taking longer than expected, consider using OnRootMismatch - https://")
    counts = [int(re.fullmatch(rf"{what}, processed (\d+) files\.", one[2]).group(1)) for one in said[1:]]  # type: ignore[union-attr]
    assert counts == sorted(counts) != []
    slow.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("loop devices")
def test_a_disk_that_no_pod_got_is_unmounted_after_a_kill(actor: ActorProcess, disk: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    place = Path(actor.settings.root_dir, GLOBAL)
    place.mkdir(parents=True)
    actor.kill()
    subprocess.run(["mount", disk, str(place)], check=True)
    actor.start()
    wait_for(lambda: mounted(actor) == [], what="the disk is unmounted")
    serve(actor, *claimed(local={"path": disk, "fsType": "xfs"}))
    message = refused(actor, user(A))
    assert message.startswith('MountVolume.MountDevice failed for volume "pv" : failed to mount the volume as "xfs", ')
    assert "it already contains ext4. Mount error: mount failed: exit status 32\nMounting command: mount\n" in message
    (event, *_) = wait_for(lambda: events(actor, "FailedMountOnFilesystemMismatch"), 10, "the volume is told")
    assert (event.involved.kind, event.involved.name, event.type) == ("PersistentVolume", "pv", "Warning")
    assert event.message.startswith('MountVolume failed for volume "pv" failed to mount the volume as "xfs", ')


# Raw devices

DEVICES = "plugins/kubernetes.io~local-volume/volumeDevices/pv"


def raw(disk: str, **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    claim, volume = claimed(local={"path": disk}, volumeMode="Block", **spec)
    return {**claim, "spec": {"volumeMode": "Block"}}, volume


def raw_user(uid: str = A) -> Pod:
    main = Container(name="c", volume_devices=(VolumeDevice(name="v", device_path="/dev/xvda"),))
    made = user(uid)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, containers=(main,)))


def told(actor: ActorProcess, reason: str, count: int = 1) -> list[str]:
    """Messages of the events of that reason, once there are so many."""

    def messages() -> list[str]:
        return [one.message for one in actor.peers["events"].of(RecordEvent) if one.reason == reason]

    wait_for(lambda: len(messages()) >= count, what=reason)
    return messages()


@pytest.mark.needs("loop devices")
def test_a_raw_device_is_a_link_and_held_while_a_pod_has_it(actor: ActorProcess, disk: str) -> None:
    serve(actor, *raw(disk))
    root = os.path.realpath(actor.settings.root_dir)
    for _ in range(2):
        path = mount(actor, raw_user(A))
    assert path == Path(actor.settings.root_dir, f"pods/{A}/volumeDevices/kubernetes.io~local-volume/pv")
    assert os.readlink(path) == disk
    mount(actor, raw_user(B))
    assert mounted(actor) == [f"{DEVICES}/{A}", f"{DEVICES}/{B}"]
    assert sorted(loops_below(root).values()) == [f"{root}/{DEVICES}/{A}", f"{root}/{DEVICES}/{B}"]
    assert Path(f"{root}/{DEVICES}/{A}").is_block_device()
    size = int(subprocess.check_output(["blockdev", "--getsize64", disk]))
    shown = {one.pod_uid: one.volumes for one in actor.ask(GetVolumeUsages(), ASKED_S).pods}
    only = VolumeUsage(name="v", used_bytes=0, inodes_used=0, local=False, capacity_bytes=size, claim="default/data")
    assert shown == {A: (only,), B: (only,)}
    assert told(actor, "SuccessfulMountVolume", 2)[:2] == [
        f'MapVolume.MapPodDevice succeeded for volume "pv" globalMapPath "{actor.settings.root_dir}/{DEVICES}"',
        f'MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "{path.parent}"',
    ]
    actor.ask(UnmountPod(pod_uid=A))
    assert mounted(actor) == [f"{DEVICES}/{B}"]
    actor.restart()
    actor.ask(UnmountPod(pod_uid=B))
    assert mounted(actor) == []
    assert loops_below(root) == {}
    assert not Path(root, DEVICES).exists()
    assert not Path(root, "pods", B, "volumeDevices").exists()


@pytest.mark.needs("loop devices")
def test_a_kill_between_the_steps_of_a_device_leaves_nothing(actor: ActorProcess, disk: str) -> None:
    serve(actor, *raw(disk))
    link = Path(actor.settings.root_dir, f"pods/{A}/volumeDevices/kubernetes.io~local-volume/pv")
    link.parent.mkdir(parents=True)
    link.symlink_to(disk)
    place = Path(actor.settings.root_dir, DEVICES)
    place.mkdir(parents=True)
    (place / A).touch()
    subprocess.run(["mount", "--bind", disk, place / A], check=True)
    actor.restart()
    actor.ask(UnmountPod(pod_uid=A))
    assert mounted(actor) == []
    assert not place.exists()
    assert not link.parent.exists()


def test_file_that_is_no_device_is_refused_as_in_the_kubelet(actor: ActorProcess, tmp_path: Path) -> None:
    serve(actor, *raw(str(tmp_path)))
    text = f'MapVolume.MapBlockVolume failed for volume "pv" : {tmp_path} is not a block device'
    assert text in refused(actor, raw_user(A))
    assert text in told(actor, "FailedMapVolume")
    serve(actor, *raw(f"{tmp_path}/none"))
    missing = f'MapVolume.MapBlockVolume failed for volume "pv" : path "{tmp_path}/none" does not exist'
    assert missing in refused(actor, raw_user(B))
    for uid in (A, B):
        actor.ask(UnmountPod(pod_uid=uid))


@pytest.mark.needs("mounts")
def test_second_fs_group_gets_a_warning(actor: ActorProcess, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    serve(actor, *claimed(local={"path": str(shared)}))
    mount(actor, user(A, security_context=PodSecurityContext(fs_group=4321)))
    mount(actor, user(B, security_context=PodSecurityContext(fs_group=5432)))
    assert shared.stat().st_gid == 4321
    assert told(actor, "AlreadyMountedVolume") == [
        "The requested fsGroup is 5432, but the volume pv has GID 4321. The volume may not be shareable."
    ]
    actor.ask(UnmountPod(pod_uid=A))
    actor.ask(UnmountPod(pod_uid=B))
    mount(actor, user(B, security_context=PodSecurityContext(fs_group=5432)))
    assert shared.stat().st_gid == 5432
    actor.ask(UnmountPod(pod_uid=B))


@pytest.mark.needs("loop devices")
def test_claim_figures_are_of_its_mounted_file_system(actor: ActorProcess, disk: str) -> None:
    serve(actor, *claimed(local={"path": disk}))
    path = mount(actor, user(A))
    (path / "f").write_bytes(b"x" * 1_000_000)
    os.sync()
    (pod_usage,) = actor.ask(GetVolumeUsages(), ASKED_S).pods
    (one,) = pod_usage.volumes
    figures = os.statvfs(path)
    assert (one.name, one.claim, one.local) == ("v", "default/data", False)
    assert one.capacity_bytes == figures.f_blocks * figures.f_frsize
    assert one.used_bytes >= 1_000_000
    assert one.inodes == figures.f_files
    actor.ask(UnmountPod(pod_uid=A))
    wait_for(lambda: mounted(actor) == [], what="the disk is unmounted")


def nfs(server: str, uid: str = A) -> Pod:
    return pod(Volume(name="v", nfs=NFSVolumeSource(server=server, path="/export")), uid=uid)


@pytest.mark.needs("mounts")
def test_nfs_export_is_mounted_and_server_errors_are_reported(actor: ActorProcess) -> None:
    for _ in range(2):
        path = mount(actor, nfs("server"))
    assert mounted(actor) == [f"pods/{A}/volumes/kubernetes.io~nfs/v"]
    (path / "x").write_text("x")
    actor.ask(UnmountPod(pod_uid=A))
    assert mounted(actor) == []
    assert refused(actor, nfs("denied")) == (
        'MountVolume.SetUp failed for volume "v" : mount failed: exit status 32\nMounting command: mount\n'
        f"Mounting arguments: -t nfs denied:/export {path}\n"
        "Output: mount.nfs: access denied by server while mounting denied:/export\n"
    )
    actor.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("mounts")
def test_nfs_server_is_never_an_option_of_mount(actor: ActorProcess, tmp_path: Path) -> None:
    wanted = actor.settings.root_dir + f"/pods/{A}/volumes/kubernetes.io~nfs/v"
    table = tmp_path / "x:/export"
    table.parent.mkdir()
    table.write_text(f"/etc {wanted} none bind 0 0\n")
    problem = refused(actor, nfs(f"--fstab={tmp_path}/x"))
    assert problem.endswith("it must be a host name or an address")
    assert mounted(actor) == []
    actor.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("mounts")
def test_a_server_that_is_down_holds_up_its_pod_only(actor: ActorProcess, tmp_path: Path) -> None:
    serve(actor, *claimed(local={"path": str(tmp_path)}))
    with pytest.raises(AssertionError, match="did not answer"):
        actor.ask(MountPod(pod=nfs("down")), 0.5)
    mount(actor, user(B))
    actor.ask(UnmountPod(pod_uid=B))
    place = f"{actor.settings.root_dir}/pods/{A}/".encode()  # other tests mount such an export beside

    def mounting() -> list[str]:
        lines = ((pid, command(pid)) for pid in os.listdir("/proc") if pid.isdigit())
        return [pid for pid, line in lines if b"down:/export" in line and place in line]

    wait_for(mounting, what="mount(8) is under way")
    actor.kill()
    wait_for(lambda: not mounting(), what="a mount that no pod waits for any more is given up")
    actor.start()
    actor.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("mounts")
def test_a_server_that_is_down_takes_a_bounded_number_of_helpers(actor: ActorProcess) -> None:
    uids = [f"{number:08}-1111-2222-3333-444444444444" for number in range(EACH + 20)]
    for uid in uids:
        actor.tell(MountPod(pod=nfs("down", uid)))

    def of_server() -> dict[str, int] | None:
        return actor.ask(Describe()).state["helpers"]["dedicated"]["owners"].get("server down")

    wait_for(lambda: of_server() == {"busy": EACH, "queued": 20}, what="the others wait for their turn")
    assert actor.ask(Describe()).state["helpers"]["forked"] == EACH
    mount(actor, nfs("server", B))
    actor.ask(UnmountPod(pod_uid=B))
    actor.ask(UnmountPod(pod_uid=uids[-1]))
    assert of_server() == {"busy": EACH, "queued": 19}, "a pod that goes need not wait for its turn"
    before = actor.ask(Describe()).state["helpers"]["forked"]
    for pid in wait_for(lambda: len(found := under_way(actor)) >= EACH and found, what="mount(8)"):
        os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: actor.ask(Describe()).state["helpers"]["forked"] >= before + EACH, what="others begin")
    actor.kill()
    wait_for(lambda: not under_way(actor), what="no mount(8) stays")
    actor.start()
    for uid in uids:
        actor.ask(UnmountPod(pod_uid=uid))


@pytest.mark.needs("mounts")
def test_a_pod_that_waits_for_a_server_keeps_no_disk_from_others(actor: ActorProcess, tmp_path: Path) -> None:
    serve(actor, *claimed(local={"path": str(tmp_path)}))
    remote, local = Volume(name="n", nfs=NFSVolumeSource(server="down", path="/export")), user(A)
    both = pod(remote, *local.spec.volumes, uid=A)
    actor.tell(MountPod(pod=msgspec.structs.replace(both, metadata=local.metadata)))
    (waiting,) = wait_for(lambda: under_way(actor), what="mount(8) is under way")
    mount(actor, user(B))
    actor.ask(UnmountPod(pod_uid=B))
    os.kill(int(waiting), signal.SIGKILL)
    wait_for(lambda: of_pod(A) in mounted(actor), what="its own disk follows")
    actor.kill()
    wait_for(lambda: not under_way(actor), what="no mount(8) stays")
    actor.start()
    actor.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("mounts")
def test_removal_waits_for_no_step_that_has_not_begun(actor: ActorProcess) -> None:
    servers = [Volume(name=name, nfs=NFSVolumeSource(server=name, path="/export")) for name in ("down", "second-down")]
    actor.tell(MountPod(pod=pod(*servers, uid=A)))
    (waiting,) = wait_for(lambda: under_way(actor), what="mount(8) is under way")
    actor.tell(UnmountPod(pod_uid=A))
    wait_for(lambda: actor.ask(Describe()).state["busy"] == [A], what="the removal waits for the first server")
    os.kill(int(waiting), signal.SIGKILL)
    actor.ask(UnmountPod(pod_uid=A))
    assert actor.ask(Describe()).state["pods"] == 0
    assert under_way(actor) == under_way(actor, "second-down") == []


def under_way(actor: ActorProcess, server: str = "down") -> list[str]:
    """Processes of mount(8) for the actor's pods of the server."""
    root = f"\0{server}:/export\0{actor.settings.root_dir}/".encode()
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and root in command(pid)]


def command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
