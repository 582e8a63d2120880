"""Usage of volumes, measured by a dedicated helper and cached."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from proto.pods.volume import GetVolumeUsages, MountPod, UnmountPod, VolumeUsage
from tests.harness import PATIENCE, ActorProcess, Stalls, wait_for
from tests.volume.dead_fuse import DeadFuse
from tests.volume.test_actor import UID, empty, pod, volume_dir
from tests.volume.test_mounted import A, claimed, mount, serve, user

QUICK = "from actors.volume.helper import pool; pool.CALL_S = 5.0; pool.KILLED_S = 0.5\n"
"""Shorter deadlines, still longer than a niced helper waits on a busy machine."""
ASKED_S = 25 * PATIENCE
"""More than a hanging and a niced helper take together."""


@pytest.fixture
def actor() -> Iterator[ActorProcess]:
    """With the real deadlines, since the measuring helper is niced and waits for seconds on a busy machine."""
    with ActorProcess("volume", None, ("pod_workers", "objects"), volume_stats_agg_period_s=1.0) as process:
        yield process


@pytest.fixture
def impatient() -> Iterator[ActorProcess]:
    with ActorProcess(
        "volume", None, ("pod_workers", "objects"), prelude=QUICK, volume_stats_agg_period_s=1.0
    ) as process:
        yield process


def usages(actor: ActorProcess, uid: str = UID) -> dict[str, VolumeUsage]:
    """Figures of one pod's volumes, by name."""
    pods = {one.pod_uid: one for one in actor.ask(GetVolumeUsages(), ASKED_S).pods}
    return {one.name: one for one in pods[uid].volumes} if uid in pods else {}


def measured(actor: ActorProcess) -> set[str]:
    """The pods that have figures."""
    return {one.pod_uid for one in actor.ask(GetVolumeUsages(), ASKED_S).pods}


@pytest.mark.needs("mounts")
def test_disk_is_walked_and_memory_asked(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("disk"), empty("memory", medium="Memory", size_limit="1Mi"))))
    (volume_dir(actor, "disk") / "deep").mkdir()
    (volume_dir(actor, "disk") / "deep/file").write_bytes(b"x" * 100_000)
    (volume_dir(actor, "memory") / "file").write_bytes(b"x" * 500_000)
    found = usages(actor)
    disk, memory = found["disk"], found["memory"]
    assert 100_000 <= disk.used_bytes < 200_000
    assert (disk.inodes_used, disk.local) == (3, True)
    assert 500_000 <= memory.used_bytes < 600_000
    assert (memory.capacity_bytes, memory.local) == (1 << 20, False)
    (volume_dir(actor, "disk") / "more").write_bytes(b"x" * 100_000)
    wait_for(lambda: usages(actor)["disk"].used_bytes >= 200_000, 40, "measured anew after the period")
    actor.ask(UnmountPod(pod_uid=UID))
    assert usages(actor) == {}


@pytest.mark.needs("fuse")
def test_hanging_volume_is_left_out_of_figures(impatient: ActorProcess) -> None:
    impatient.ask(MountPod(pod=pod(empty("e"))))
    impatient.ask(MountPod(pod=pod(empty("e"), uid="other")))
    inside = volume_dir(impatient, "e") / "inside"
    with closing(DeadFuse(inside)):
        began = time.monotonic()
        with Stalls() as machine:
            found = measured(impatient)
        assert time.monotonic() - began < 11 * PATIENCE + machine.longest_s
        assert found == {"other"}
        wait_for(lambda: measured(impatient) == {"other"}, what="again")
        assert len(impatient.ask(Describe()).state["helpers"]["written_off"]) == 1
    wait_for(lambda: UID in measured(impatient), what="it answers again")
    os.rmdir(inside)
    for uid in (UID, "other"):
        impatient.ask(UnmountPod(pod_uid=uid))


def test_a_measurement_has_a_helper_of_its_own(actor: ActorProcess) -> None:
    actor.ask(MountPod(pod=pod(empty("e"))))
    for number in range(2000):
        Path(volume_dir(actor, "e"), str(number)).touch()
    before = actor.ask(Describe()).state["helpers"]["forked"]
    assert usages(actor)["e"].inodes_used == 2001
    assert actor.ask(Describe()).state["helpers"]["forked"] == before + 1
    actor.ask(UnmountPod(pod_uid=UID))


DIES = """
import os
from actors.volume.ops import usage
real = usage.measure_pod
def measure_pod(root, uid, at):
    if os.path.exists(root + "/die"):
        os._exit(1)
    return real(root, uid, at)
usage.measure_pod = measure_pod
"""


@pytest.mark.needs("mounts")
def test_failed_measurement_keeps_the_old_figures(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    with ActorProcess("volume", None, ("pod_workers", "objects"), prelude=DIES, volume_stats_agg_period_s=0.0) as actor:
        serve(actor, *claimed(local={"path": str(tmp_path / "shared")}))
        mount(actor, user())
        (before,) = actor.ask(GetVolumeUsages(), ASKED_S).pods
        assert [one.claim for one in before.volumes] == ["default/data"]
        marker = Path(actor.settings.root_dir, "die")
        marker.touch()
        after = actor.ask(GetVolumeUsages(), ASKED_S).pods
        assert after == (before,), "the helper died: nothing is missing, and nothing twice"
        marker.unlink()
        assert actor.ask(GetVolumeUsages(), ASKED_S).pods[0].time > before.time
        actor.ask(UnmountPod(pod_uid=A))


@pytest.mark.needs("fuse")
def test_hanging_mount_is_left_out_and_not_asked_again_soon(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with ActorProcess(
        "volume", None, ("pod_workers", "objects"), prelude=QUICK, volume_stats_agg_period_s=0.0
    ) as actor:
        serve(actor, *claimed(local={"path": str(shared)}))
        path = mount(actor, user())
        assert [one.claim for one in usages(actor, A).values()] == ["default/data"]
        with closing(DeadFuse(path)):
            assert usages(actor, A) == {}, "it was asked, and did not answer"
            forked = actor.ask(Describe()).state["helpers"]["forked"]
            assert usages(actor, A) == {}
            assert actor.ask(Describe()).state["helpers"]["forked"] == forked + 1, "it is not asked again and again"
        actor.ask(UnmountPod(pod_uid=A))


SLICES = """
from actors._host.files.disk_use import Walk
from actors.volume.ops import usage
usage.Walk = lambda deadline, to_skip=0, **more: Walk(deadline, to_skip + 1000, to_skip=to_skip, **more)
"""
"""Each walk counts a thousand entries, however fast the disk is."""


def test_many_names_hide_no_large_file(tmp_path: Path) -> None:
    with ActorProcess(
        "volume", None, ("pod_workers", "objects"), prelude=SLICES, volume_stats_agg_period_s=0.0
    ) as actor:
        actor.ask(MountPod(pod=pod(empty("e"), empty("f"))))
        for number in range(5000):
            Path(volume_dir(actor, "e"), str(number)).touch()
        large = volume_dir(actor, "e") / "d/large"
        large.parent.mkdir()
        large.write_bytes(b"x" * 10_000_000)
        shown: list[int] = []

        def is_seen() -> bool:
            found = usages(actor)
            assert found["f"].inodes_used == 1, "the other volume has its share"
            shown.append(found["e"].used_bytes)
            return shown[-1] >= 10_000_000

        wait_for(is_seen, 40, "the walks get to the large file")
        assert len(shown) > 3, "one walk does not"
        for _ in range(3):
            assert usages(actor)["e"].used_bytes >= 10_000_000, "the last whole count holds"
        large.unlink()
        wait_for(lambda: usages(actor)["e"].used_bytes < 10_000_000, 40, "the next whole count replaces it")
        actor.ask(UnmountPod(pod_uid=UID))
