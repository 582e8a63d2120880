"""The volume process on real directories and mounts of a private root."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actors._host.files.mounts import mounts_under
from proto.agent.actor import Describe
from proto.pods.events import RecordEvent
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import CheckVolumes, MountPod, ReadVolumeFile, UnmountPod
from proto.v1 import (
    Container,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    ISCSIVolumeSource,
    ObjectMeta,
    Pod,
    PodSpec,
    Volume,
    VolumeMount,
)
from proto.v1.containers.security import PodSecurityContext
from proto.v1.meta import ObjectFieldSelector
from proto.wire.errors import Refused
from proto.wire.message import Done
from tests.harness import ActorProcess, Stalls, actor_process, wait_for

UID = "0b0f1f7e-1111-2222-3333-444444444444"


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with actor_process("volume", peers=("pod_workers", "objects")) as process:
        os.makedirs(process.settings.root_dir, exist_ok=True)
        try:
            yield process
        finally:
            left = mounts_under(process.dir)
            for mount in reversed(left):
                subprocess.run(["umount", mount.mount_point], check=True)
    assert left == [], "every mount is gone when the pods are"


def test_questions_about_unknown_pods_leave_no_state(actor: ActorProcess) -> None:
    """They may come after UnmountPod, and UIDs never end."""
    actor.ask(CheckVolumes(pod_uid=UID, paths={"h": "/"}))
    with pytest.raises(Refused):
        actor.ask(ReadVolumeFile(pod_uid="other", volume="h", volume_path="/nowhere", path="f", max_bytes=9))
    assert actor.ask(Describe()).state["pods"] == 0
    actor.ask(MountPod(pod=pod(empty("e"))))
    actor.ask(CheckVolumes(pod_uid=UID, paths={"h": "/"}))
    assert actor.ask(Describe()).state["pods"] == 1, "a known pod stays"
    actor.ask(UnmountPod(pod_uid=UID))


def pod(*volumes: Volume, uid: str = UID, **spec: Any) -> Pod:
    mounts = tuple(VolumeMount(name=volume.name, mount_path=f"/{volume.name}") for volume in volumes)
    containers = (Container(name="c", volume_mounts=mounts),)
    return Pod(metadata=ObjectMeta(uid=uid), spec=PodSpec(volumes=volumes, containers=containers, **spec))


def empty(name: str, **source: Any) -> Volume:
    return Volume(name=name, empty_dir=EmptyDirVolumeSource(**source))


def host(name: str, path: Path | str, type_: str = "") -> Volume:
    return Volume(name=name, host_path=HostPathVolumeSource(path=str(path), type=type_))


def pod_dir(actor: ActorProcess, uid: str = UID) -> Path:
    return Path(actor.settings.root_dir) / "pods" / uid


def volume_dir(actor: ActorProcess, name: str, uid: str = UID) -> Path:
    return pod_dir(actor, uid) / "volumes/kubernetes.io~empty-dir" / name


def mounted(path: Path) -> list[str]:
    return [mount.fs_type for mount in mounts_under(str(path))]


def unmount_refused(actor: ActorProcess) -> str:
    with pytest.raises(Refused) as caught:
        actor.ask(UnmountPod(pod_uid=UID))
    assert caught.value.reason == "FailedUnMount"
    return caught.value.message


@pytest.mark.needs("mounts")
def test_volumes_come_and_go(actor: ActorProcess, tmp_path: Path) -> None:
    spec = pod(
        empty("disk"),
        empty("memory", medium="Memory", size_limit="1Mi"),
        host("node", tmp_path / "made", "DirectoryOrCreate"),
        security_context=PodSecurityContext(fs_group=1234),
    )
    for _ in range(2):
        paths = actor.ask(MountPod(pod=spec)).host_paths
        assert paths == {
            "disk": str(volume_dir(actor, "disk")),
            "memory": str(volume_dir(actor, "memory")),
            "node": str(tmp_path / "made"),
        }
        assert mounted(pod_dir(actor)) == ["tmpfs"]
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    options = next(
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(pod_dir(actor)) in line
    )
    assert ("noswap" in options) == (release >= (6, 4))
    size = os.statvfs(volume_dir(actor, "memory"))
    assert size.f_blocks * size.f_frsize == 1 << 20
    assert volume_dir(actor, "disk").stat().st_mode & 0o7777 == 0o2777
    assert volume_dir(actor, "memory").stat().st_mode & 0o7777 == 0o3777
    assert volume_dir(actor, "memory").stat().st_gid == 1234
    (volume_dir(actor, "disk") / "deep/er").mkdir(parents=True)
    (volume_dir(actor, "memory") / "x").write_text("x")
    (tmp_path / "made/kept").write_text("x")
    for _ in range(2):
        assert actor.ask(UnmountPod(pod_uid=UID)) == Done()
    assert list(pod_dir(actor).iterdir()) == []
    assert (tmp_path / "made/kept").exists()


def test_a_pod_without_volumes_costs_nothing(actor: ActorProcess) -> None:
    assert actor.ask(MountPod(pod=pod())).host_paths == {}
    assert actor.ask(UnmountPod(pod_uid=UID)) == Done()
    assert not pod_dir(actor).exists()
    assert actor.ask(Describe()).state["helpers"]["forked"] == 0


def test_failed_host_path_names_the_volume_and_is_retried(actor: ActorProcess, tmp_path: Path) -> None:
    path = tmp_path / "late"
    with pytest.raises(Refused) as caught:
        actor.ask(MountPod(pod=pod(empty("e"), host("h", path, "Directory"))))
    assert (caught.value.reason, caught.value.message) == (
        "FailedMount",
        f'MountVolume.SetUp failed for volume "h" : hostPath type check failed: {path} is not a directory',
    )
    path.mkdir()
    told = actor.peers["pod_workers"]
    wait_for(lambda: told.of(VolumesMounted) == [VolumesMounted(pod_uid=UID)], what="pod_workers hears of it")
    assert set(actor.ask(MountPod(pod=pod(empty("e"), host("h", path, "Directory")))).host_paths) == {"e", "h"}
    actor.ask(UnmountPod(pod_uid=UID))


def long_names(name: str, count: int) -> Volume:
    """A volume of files that each hold the pod's name."""
    field = ObjectFieldSelector(field_path="metadata.name")
    items = tuple(DownwardAPIVolumeFile(path=str(number), field_ref=field) for number in range(count))
    return Volume(name=name, downward_api=DownwardAPIVolumeSource(items=items))


SMALL = """
from actors.volume.plugins import payload
payload.MAX_VOLUME_BYTES, payload.MAX_POD_BYTES = 2000, 3000
"""


def test_files_that_are_too_large_are_an_event_of_their_volume() -> None:
    with actor_process("volume", peers=("pod_workers", "objects", "events"), prelude=SMALL) as actor:
        spec = pod(long_names("one", 21), long_names("two", 20), long_names("three", 15))
        spec = replace(spec, metadata=replace(spec.metadata, name="x" * 100, namespace="ns"))
        with pytest.raises(Refused):
            actor.ask(MountPod(pod=spec))
        events = actor.peers["events"]
        found = wait_for(lambda: len(events.of(RecordEvent)) >= 2 and events.of(RecordEvent), what="the events")
        assert {one.reason for one in found} == {"FailedMount"}
        first, second = sorted(one.message for one in found[:2])
        failed = 'MountVolume.SetUp failed for volume "{}" : Too long: '
        assert first.startswith(failed.format("one") + "its files may not be more than 2000 bytes together")
        assert second.startswith(failed.format("three") + "the files of a pod's volumes may not be more ")
        assert 'than 3000 bytes together; this one has 1500, and "two" have 2000;' in second
        actor.ask(UnmountPod(pod_uid=UID))


def test_a_source_that_is_not_supported_is_refused_for_good(actor: ActorProcess) -> None:
    with pytest.raises(Refused, match="does not support volumes of type `iscsi`") as caught:
        actor.ask(MountPod(pod=pod(Volume(name="s", iscsi=ISCSIVolumeSource()))))
    assert not caught.value.retry
    assert not pod_dir(actor).exists()


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b"])
def test_a_uid_that_leads_elsewhere_is_refused(actor: ActorProcess, uid: str) -> None:
    for request in (MountPod(pod=pod(empty("e"), uid=uid)), UnmountPod(pod_uid=uid)):
        with pytest.raises(Refused):
            actor.ask(request)  # type: ignore[type-var]


@pytest.mark.parametrize("lost", ["nothing", "ready", "ready and mount"])
@pytest.mark.needs("mounts")
def test_killed_in_mid_mount_the_next_incarnation_finishes(actor: ActorProcess, lost: str) -> None:
    spec = pod(empty("disk"), empty("memory", medium="Memory", size_limit="1Mi"))
    actor.ask(MountPod(pod=spec))
    (volume_dir(actor, "disk") / "kept").write_text("x")
    actor.kill()
    if "ready" in lost:
        for name in ("disk", "memory"):
            (pod_dir(actor) / "plugins/kubernetes.io~empty-dir" / name / "ready").unlink()
    if "mount" in lost:
        subprocess.run(["umount", volume_dir(actor, "memory")], check=True)
    actor.start()
    assert set(actor.ask(MountPod(pod=spec)).host_paths) == {"disk", "memory"}
    assert mounted(pod_dir(actor)) == ["tmpfs"]
    assert (volume_dir(actor, "disk") / "kept").exists()
    actor.restart()
    actor.ask(UnmountPod(pod_uid=UID))
    assert list(pod_dir(actor).iterdir()) == []


def test_links_in_a_volume_are_deleted_not_followed(actor: ActorProcess, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    actor.ask(MountPod(pod=pod(empty("e"))))
    inner = volume_dir(actor, "e") / "inner"
    inner.mkdir()
    (inner / "dir").symlink_to(tmp_path)
    (inner / "file").symlink_to(tmp_path / "precious")
    (inner / "up").symlink_to("..")
    actor.ask(UnmountPod(pod_uid=UID))
    assert (tmp_path / "precious").read_text() == "x"
    assert not inner.exists()


@pytest.mark.parametrize("medium", ["", "Memory"])
@pytest.mark.needs("mounts")
def test_a_mount_inside_a_volume_is_not_crossed(actor: ActorProcess, tmp_path: Path, medium: str) -> None:
    (tmp_path / "precious").write_text("x")
    actor.ask(MountPod(pod=pod(empty("e", medium=medium))))
    point = volume_dir(actor, "e") / "a/b"
    point.mkdir(parents=True)
    # The same file system: st_dev would not tell.
    subprocess.run(["mount", "--bind", tmp_path, point], check=True)
    with (point / "precious").open():
        assert unmount_refused(actor).endswith(f"unmount {point}: device or resource busy")
    assert (point / "precious").read_text() == "x"
    actor.ask(UnmountPod(pod_uid=UID))
    assert list(pod_dir(actor).iterdir()) == []
    assert (tmp_path / "precious").read_text() == "x"


@pytest.mark.needs("mounts")
def test_a_volume_covered_by_something_else_is_left_alone(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("e"))))
    # Neither of the disk nor in memory as the kubelet's own volumes: where pytest's directory is may be either.
    subprocess.run(["mount", "-t", "ramfs", "none", volume_dir(actor, "e")], check=True)
    (volume_dir(actor, "e") / "precious").write_text("x")
    assert 'UnmountVolume.TearDown failed for volume "e" : its directory is a mount point' in unmount_refused(actor)
    assert (volume_dir(actor, "e") / "precious").exists()
    subprocess.run(["umount", volume_dir(actor, "e")], check=True)
    actor.ask(UnmountPod(pod_uid=UID))


@pytest.mark.needs("mounts")
def test_a_tmpfs_in_use_is_refused_and_goes_once_it_is_free(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("m", medium="Memory"))))
    with (volume_dir(actor, "m") / "open").open("w"):
        assert unmount_refused(actor).endswith("device or resource busy")
    actor.ask(UnmountPod(pod_uid=UID))


def test_pod_volumes_of_another_agent_are_removed(actor: ActorProcess) -> None:
    token = pod_dir(actor) / "volumes/kubernetes.io~projected/kube-api-access-x"
    token.mkdir(parents=True)
    (token / "token").write_text("x")
    ready = pod_dir(actor) / "plugins/kubernetes.io~empty-dir/wrapped_kube-api-access-x"
    ready.mkdir(parents=True)
    (ready / "ready").touch()
    data = pod_dir(actor) / "volumes/kubernetes.io~csi/disk"
    data.mkdir(parents=True)
    (data / "data").write_text("x")
    actor.restart()
    assert "directory not empty" in unmount_refused(actor)
    assert not token.exists()
    assert not ready.exists()
    (data / "data").unlink()
    actor.ask(UnmountPod(pod_uid=UID))
    assert list(pod_dir(actor).iterdir()) == []


def test_large_removal_does_not_block_other_pods(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("e"))))
    directory = volume_dir(actor, "e")
    for top in range(20):
        (directory / str(top)).mkdir()
        for number in range(1000):
            (directory / str(top) / str(number)).touch()
    actor.tell(UnmountPod(pod_uid=UID))
    wait_for(lambda: not (pod_dir(actor) / "plugins").exists(), what="the removal has begun")
    slowest = 0.0
    with Stalls() as machine:
        for number in range(10):
            began = time.monotonic()
            actor.ask(MountPod(pod=pod(empty("e"), uid=f"other-{number}")))
            slowest = max(slowest, time.monotonic() - began)
    assert slowest < 1.0 + machine.longest_s
    wait_for(lambda: not list(pod_dir(actor).iterdir()), 30, "the large volume is gone")


def test_directories_nested_deeper_than_files_may_be_open(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("e"))))
    here = os.open(volume_dir(actor, "e"), os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    actor.ask(UnmountPod(pod_uid=UID), timeout_s=30)
    assert list(pod_dir(actor).iterdir()) == []


def test_hung_and_failed_pods_show_in_describe(actor: ActorProcess) -> None:
    with pytest.raises(Refused):
        actor.ask(MountPod(pod=pod(host("h", "/no/such", "File"))))
    state = actor.ask(Describe()).state
    assert state["failed"] == {f"{UID}/h": "hostPath type check failed: /no/such is not a file"}
    assert state["hung"] == {}
    actor.ask(UnmountPod(pod_uid=UID))
    assert actor.ask(Describe()).state["pods"] == 0


# Mounts beneath a volume of files


def labelled(label: str, *ephemeral: str) -> Pod:
    """A pod with its label in the file `label` of the volume `v`; its container mounts it at /v.

    An ephemeral container mounts `v` at the first path, and an emptyDir at the second.
    """
    item = DownwardAPIVolumeFile(path="label", field_ref=ObjectFieldSelector(field_path="metadata.labels['a']"))
    files = Volume(name="v", downward_api=DownwardAPIVolumeSource(items=(item,)))
    mounts = tuple(VolumeMount(name=name, mount_path=path) for name, path in zip("ve", ephemeral, strict=False))
    spec = PodSpec(
        volumes=(files, empty("e")),
        containers=(Container(name="c", volume_mounts=(VolumeMount(name="v", mount_path="/v"),)),),
        ephemeral_containers=(Container(name="d", volume_mounts=mounts),) if mounts else (),
    )
    return Pod(metadata=ObjectMeta(uid=UID, labels={"a": label}), spec=spec)


@pytest.mark.parametrize(
    "ephemeral",
    [
        ("/v", "/v/ok"),
        ("/v", "/v/..x"),
        ("/v", "/v/..data/x"),
        ("/v", "/v" + "/d" * 70),
        ("/v", "/v/" + "x" * 256),
        ("../v", "/else"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.needs("mounts")
def test_no_ephemeral_container_stops_a_refresh(
    actor: ActorProcess, ephemeral: tuple[str, str], restarted: bool
) -> None:
    directory = Path(actor.ask(MountPod(pod=labelled("1"))).host_paths["v"])
    for label in ("2", "3"):
        actor.ask(MountPod(pod=labelled(label, *ephemeral)))
        assert (directory / "label").read_text() == label
        assert actor.ask(Describe()).state["failed"] == {}
        assert (directory / "ok").is_dir() == ephemeral[1].endswith("ok")
        if restarted:
            actor.restart()
    actor.ask(UnmountPod(pod_uid=UID))
