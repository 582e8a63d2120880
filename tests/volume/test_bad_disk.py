"""A root directory on a disk that is full or cannot be written: errors name the volume, old content stays,
and it is updated once the disk can be written again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from proto.pods.objects import ApiObject, GetObjects, Objects
from proto.pods.pod_workers import VolumesMounted
from proto.pods.volume import MountPod, ObjectsChanged, UnmountPod
from proto.v1 import Volume
from proto.v1.volumes.projected import ConfigMapVolumeSource
from proto.wire.errors import Refused
from tests.harness import ActorProcess, actor_process, wait_for
from tests.volume.test_actor import UID, empty, pod, pod_dir

SPEC = pod(Volume(name="c", config_map=ConfigMapVolumeSource(name="c")))
SIZE = 256 * 1024


class Disk:
    """A small disk at the root directory of an actor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = b"1"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", path], check=True)

    def objects(self, request: GetObjects) -> Objects:
        data = {"a": self.version * SIZE, "b": self.version}
        return Objects(found=tuple(ApiObject(ref=ref, resource_version="1", data=data) for ref in request.refs))

    def fill(self) -> None:
        with (self.path / "fills").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        (self.path / "fills").unlink()

    def forbid(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)

    def allow(self) -> None:
        subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    one = Disk(tmp_path / "disk")
    yield one
    subprocess.run(["umount", "-l", one.path], check=True)


@pytest.fixture
def actor(disk: Disk) -> Iterator[ActorProcess]:
    with actor_process("volume", peers=("pod_workers", "objects"), root_dir=str(disk.path / "root")) as process:
        os.makedirs(process.settings.root_dir, exist_ok=True)
        process.peers["objects"].answers[GetObjects] = disk.objects
        yield process


def failures(actor: ActorProcess) -> str:
    return str(actor.ask(Describe()).state["failed"])


def versions(volume: Path) -> list[str]:
    """Directories that hold the content of a volume of files."""
    return [name for name in os.listdir(volume) if name.startswith("..2")]


CASES = pytest.mark.parametrize(
    ("spoil", "mend", "reason"),
    [(Disk.fill, Disk.empty, "no space left on device"), (Disk.forbid, Disk.allow, "read-only file system")],
    ids=["full", "read-only"],
)


@CASES
@pytest.mark.needs("mounts")
def test_a_new_volume_is_refused_and_comes_by_itself(
    actor: ActorProcess, disk: Disk, spoil: Callable[[Disk], None], mend: Callable[[Disk], None], reason: str
) -> None:
    spoil(disk)
    with pytest.raises(Refused, match=f'MountVolume.SetUp failed for volume "c" : .*{reason}'):
        actor.ask(MountPod(pod=SPEC))
    mend(disk)
    wait_for(lambda: actor.peers["pod_workers"].of(VolumesMounted), what="it has been tried again")
    path = Path(actor.ask(MountPod(pod=SPEC)).host_paths["c"])
    assert (path / "b").read_bytes() == b"1"
    actor.ask(UnmountPod(pod_uid=UID))


@CASES
@pytest.mark.needs("mounts")
def test_old_content_stays_complete_until_new_content_is_written(
    actor: ActorProcess, disk: Disk, spoil: Callable[[Disk], None], mend: Callable[[Disk], None], reason: str
) -> None:
    path = Path(actor.ask(MountPod(pod=SPEC)).host_paths["c"])
    spoil(disk)
    disk.version = b"2"
    actor.tell(ObjectsChanged(full=True))
    wait_for(lambda: reason in failures(actor), what="the change fails")
    assert (path / "a").read_bytes() == b"1" * SIZE
    assert (path / "b").read_bytes() == b"1"
    # A further try makes another one for a moment.
    wait_for(lambda: versions(path) == [os.readlink(path / "..data")], what="nothing is left of the failed change")
    actor.ask(MountPod(pod=SPEC))  # not as it should be, but there
    actor.restart()
    actor.ask(MountPod(pod=SPEC))
    mend(disk)
    wait_for(lambda: (path / "b").read_bytes() == b"2", what="the change is there")
    assert (path / "a").read_bytes() == b"2" * SIZE
    actor.ask(UnmountPod(pod_uid=UID))


@CASES
@pytest.mark.needs("mounts")
def test_a_pod_goes_from_a_disk_as_soon_as_it_can(
    actor: ActorProcess, disk: Disk, spoil: Callable[[Disk], None], mend: Callable[[Disk], None], reason: str
) -> None:
    actor.ask(MountPod(pod=pod(empty("e"), empty("m", medium="Memory"))))
    spoil(disk)
    if reason == "read-only file system":
        with pytest.raises(Refused, match=reason):
            actor.ask(UnmountPod(pod_uid=UID))
        mend(disk)
    actor.ask(UnmountPod(pod_uid=UID))
    assert list(pod_dir(actor).iterdir()) == []
