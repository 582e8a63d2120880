"""A file system that never answers: its pod is refused, others go on, and all recover when it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from proto.pods.volume import BindSubPaths, CheckVolumes, MountPod, ReadVolumeFile, SubPath, UnmountPod
from proto.wire.errors import Refused
from tests.harness import PATIENCE, ActorProcess, Stalls, wait_for
from tests.volume.dead_fuse import DeadFuse
from tests.volume.test_actor import UID, empty, host, pod, volume_dir

QUICK = "from actors.volume.helper import pool; pool.CALL_S = 2.0; pool.KILLED_S = 0.5\n"
"""Shorter deadlines, still longer than a busy machine's pauses."""

pytestmark = pytest.mark.needs("fuse")


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    with ActorProcess("volume", None, ("pod_workers", "objects"), prelude=QUICK) as process:
        yield process


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[DeadFuse]:
    with closing(DeadFuse(tmp_path / "dead")) as one:
        yield one


def written_off(actor: ActorProcess) -> list[int]:
    pids: list[int] = actor.ask(Describe()).state["helpers"]["written_off"]
    return pids


def refused(actor: ActorProcess, dead: DeadFuse, type_: str = "") -> str:
    with pytest.raises(Refused) as caught:
        actor.ask(MountPod(pod=pod(empty("e"), host("h", dead.path, type_))))
    return caught.value.message


@pytest.mark.parametrize("type_", ["", "Directory"])
def test_refusal_names_hanging_volume_until_it_answers(actor: ActorProcess, dead: DeadFuse, type_: str) -> None:
    began = time.monotonic()
    message = refused(actor, dead, type_)
    assert time.monotonic() - began < 15 * PATIENCE
    assert message.startswith("Unable to attach or mount volumes: unmounted volumes=[h], unattached volumes=[], ")
    assert 'volume "h" has not answered for ' in message
    assert volume_dir(actor, "e").is_dir(), "the pod's other volume is there"
    (pid,) = written_off(actor)
    for _ in range(3):
        refused(actor, dead, type_)
    assert written_off(actor) == [pid], "no second helper is sent after it"
    dead.close()
    dead.close = lambda: None  # type: ignore[method-assign]
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), what="the helper is gone")
    wait_for(lambda: actor.peers["pod_workers"].received, what="pod_workers hears that it is mounted")
    assert set(actor.ask(MountPod(pod=pod(empty("e"), host("h", dead.path, type_)))).host_paths) == {"e", "h"}
    assert written_off(actor) == []
    actor.ask(UnmountPod(pod_uid=UID))


def test_next_incarnation_knows_hanging_volumes_and_since_when(actor: ActorProcess, dead: DeadFuse) -> None:
    refused(actor, dead)
    (pid,) = written_off(actor)
    saved = Path(actor.settings.root_dir, "nodevisor/volume.json")
    wait_for(lambda: saved.exists() and f'"pid":{pid},' in saved.read_text(), what="the helper is on record")
    for _ in range(2):
        actor.restart()
        message = refused(actor, dead)
        age = int(message.rpartition("has not answered for ")[2].removesuffix(" s"))
        assert age >= 2
        assert written_off(actor) == [pid]


def test_mount_that_dies_later_is_measured_once_until_it_answers(actor: ActorProcess, dead: DeadFuse) -> None:
    dead.revive()
    spec, path = pod(host("h", dead.path)), str(dead.path)
    actor.ask(MountPod(pod=spec))
    look = CheckVolumes(pod_uid=UID, paths={"h": path})
    actor.ask(look)
    dead.die()
    sub_path = SubPath(index=0, volume="h", volume_path=path, sub_path="x")
    for request in (
        look,
        ReadVolumeFile(pod_uid=UID, volume="h", volume_path=path, path="f", max_bytes=9),
        BindSubPaths(pod_uid=UID, container="c", sub_paths=(sub_path,)),
        MountPod(pod=spec),
        look,
    ):
        with pytest.raises(Refused, match='volume "h" has not answered for '):
            actor.ask(request)  # type: ignore[arg-type]
    assert len(written_off(actor)) == 1
    dead.revive()
    wait_for(lambda: actor.peers["pod_workers"].received, what="pod_workers hears that it answers")
    actor.ask(look)
    actor.ask(UnmountPod(pod_uid=UID))


def test_other_pods_are_not_delayed_by_a_hanging_volume(actor: ActorProcess, dead: DeadFuse) -> None:
    for number in range(3):
        actor.tell(MountPod(pod=pod(host("h", dead.path), uid=f"hangs-{number}")))
    assert dead.asked.wait(5)
    slowest = 0.0
    with Stalls() as machine:
        for number in range(50):
            began = time.monotonic()
            uid = f"other-{number}"
            actor.ask(MountPod(pod=pod(empty("e"), uid=uid)))
            actor.ask(UnmountPod(pod_uid=uid))
            slowest = max(slowest, time.monotonic() - began)
    assert slowest < 1.0 + machine.longest_s
    wait_for(lambda: len(actor.ask(Describe()).state["helpers"]["written_off"]) == 3, what="three are written off")


def test_pod_with_a_hanging_volume_can_be_removed(actor: ActorProcess, dead: DeadFuse) -> None:
    refused(actor, dead)
    actor.ask(UnmountPod(pod_uid=UID))
    assert not volume_dir(actor, "e").exists()
    assert actor.ask(Describe()).state["hung"] == {}


def test_mount_over_a_volume_is_named_and_does_not_block(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("e"), empty("f"))))
    with closing(DeadFuse(volume_dir(actor, "e"))):
        with pytest.raises(Refused, match=r'volume "e" : its directory is a mount point \(fuse\) that is not ours'):
            actor.ask(UnmountPod(pod_uid=UID))
        assert not volume_dir(actor, "f").exists()
        actor.restart()
        assert actor.ask(Describe()).state["helpers"]["written_off"] == []
    actor.ask(UnmountPod(pod_uid=UID))
