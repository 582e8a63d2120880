"""kill -9 of the actor at random moments under churn: no leaks, no losses, and volumes in use stay."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actors._host.files.mounts import mounts_under
from proto.pods.objects import ApiObject, GetObjects, ObjectRef, Objects
from proto.pods.volume import BindSubPaths, MountPod, SubPath, UnmountPod
from proto.v1 import Pod, Volume
from proto.v1.volumes.projected import ConfigMapVolumeSource, SecretVolumeSource
from proto.wire.errors import ActorError
from tests.harness import ActorProcess, alive, wait_for
from tests.volume.test_actor import empty, pod

KILLS = 40
PODS = 6


def objects(request: GetObjects) -> Objects:
    """Every object there may be, with another content each time."""
    return Objects(
        found=tuple(
            ApiObject(ref=ref, resource_version="1", data={"k": b"%d" % time.monotonic_ns()}) for ref in request.refs
        )
    )


def spec(uid: str) -> Pod:
    return pod(
        empty("disk"),
        empty("memory", medium="Memory", size_limit="1Mi"),
        Volume(name="secret", secret=SecretVolumeSource(secret_name="s")),
        Volume(name="config", config_map=ConfigMapVolumeSource(name="c")),
        uid=uid,
    )


class Churn(threading.Thread):
    """One pod that starts, writes to its volumes, checks them, and ends, again and again."""

    def __init__(self, actor: ActorProcess, uid: str) -> None:
        super().__init__()
        self.actor, self.uid = actor, uid
        self.stop = threading.Event()
        self.rounds = 0
        self.problems: list[str] = []

    def ask(self, request: Any) -> Any:
        """Repeats a request, as a pod worker does."""
        while True:
            try:
                return self.actor.ask(request, 1.0)
            except (ActorError, AssertionError):
                time.sleep(0.01)

    def run(self) -> None:
        while not self.stop.is_set():
            paths = self.ask(MountPod(pod=spec(self.uid))).host_paths
            sub_path = SubPath(index=0, volume="memory", volume_path=paths["memory"], sub_path="a/b")
            bound = self.ask(BindSubPaths(pod_uid=self.uid, container="c", sub_paths=(sub_path,))).host_paths[0]
            Path(bound, "kept").write_text(self.uid)
            Path(paths["disk"], "kept").write_text(self.uid)
            for _ in range(random.randint(1, 5)):
                self.ask(MountPod(pod=spec(self.uid)))
                self.look(paths)
            self.ask(UnmountPod(pod_uid=self.uid))
            self.rounds += 1

    def look(self, paths: dict[str, str]) -> None:
        kept = [Path(paths["disk"], "kept"), Path(paths["memory"], "a/b/kept")]
        for path in (*kept, Path(paths["secret"], "k"), Path(paths["config"], "k")):
            try:
                if path in kept and path.read_text() != self.uid:
                    self.problems.append(f"{path} has another content")
                path.read_bytes()
            except OSError as error:
                self.problems.append(str(error))


@pytest.mark.needs("mounts")
@pytest.mark.timeout(120 + 6 * KILLS)
def test_kills_at_random_moments_under_churn() -> None:
    with ActorProcess("volume", None, ("pod_workers", "objects")) as actor:
        actor.peers["objects"].answers[GetObjects] = objects
        churn = [Churn(actor, f"pod-{number}") for number in range(PODS)]
        try:
            for one in churn:
                one.start()
            for _ in range(KILLS):
                time.sleep(random.random() * 0.1)
                actor.restart()
        finally:
            for one in churn:
                one.stop.set()
            for one in churn:
                one.join(60)
            left = mounts_under(actor.dir)
            for mount in reversed(left):
                subprocess.run(["umount", mount.mount_point], check=True)
        assert [problem for one in churn for problem in one.problems] == []
        assert left == []
        assert all(one.rounds for one in churn)
        pods = Path(actor.settings.root_dir, "pods")
        assert [str(path) for path in pods.glob("*/*")] == [], "nothing of a pod that went is left"
        assert ObjectRef(kind="Secret", name="s") in {
            ref for request in actor.peers["objects"].of(GetObjects) for ref in request.refs
        }


def helpers(actor: ActorProcess) -> set[int]:
    """PIDs of the actor's helper processes."""
    found: set[int] = set()
    for one in Path(f"/proc/{actor.pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended since it was listed
            found |= {int(pid) for pid in one.read_text().split()}
    return found


def test_helper_ends_with_its_actor_and_when_idle() -> None:
    prelude = "from actors.volume.helper import pool; pool.IDLE_S = 5.0\n"
    with ActorProcess("volume", None, ("pod_workers", "objects"), prelude=prelude) as actor:
        actor.ask(MountPod(pod=pod(empty("e"))))
        first = helpers(actor)  # the actor's first look at the root directory may have one beside the pod's
        titles = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in first]
        assert any(title.startswith(b"supervisor: volume helper") for title in titles)
        actor.kill()
        wait_for(lambda: not any(map(alive, first)), what="the helpers have ended with their actor")
        actor.start()
        actor.ask(MountPod(pod=pod(empty("f"))))
        for pid in helpers(actor):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: set(actor.ask(MountPod(pod=pod(empty("g")))).host_paths) == {"g"}, what="another one comes")
        wait_for(lambda: not helpers(actor), 20, "the helpers have ended for want of work")
        actor.ask(UnmountPod(pod_uid="0b0f1f7e-1111-2222-3333-444444444444"))
