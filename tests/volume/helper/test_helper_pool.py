"""The pool of helpers on a machine that stands still, and on one without processes, memory or descriptors."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.agent.actor import Describe
from proto.pods.volume import GetVolumeUsages, MountPod, UnmountPod
from proto.wire.errors import Refused
from tests.harness import ActorProcess, alive, wait_for
from tests.volume.test_actor import UID, empty, host, pod

SLOW = """
import os, time
from actors.volume.ops import setup
real = setup.check_host_path
def slow(volume):
    real(volume)
    if volume.path.endswith("/slow") and not os.path.exists(volume.path + "/begun"):
        open(volume.path + "/begun", "w").close()
        time.sleep({seconds})
        open(volume.path + "/done", "w").close()
setup.check_host_path = slow
"""
"""The first check of a hostPath named `slow` takes long."""

FULL = """
import errno, os, socket
from actors.volume.helper import pool
def failing(module, name):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        if os.path.exists({marker!r}):
            raise OSError({error}, os.strerror({error}))
        return real(*args, **kwargs)
    setattr(module, name, wrapped)
failing({module}, {name!r})
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    path = tmp_path / "slow"
    path.mkdir()
    return path


def started(prelude: str) -> ActorProcess:
    return ActorProcess("volume", None, ("pod_workers", "objects"), prelude=prelude)


def mounted(actor: ActorProcess, uid: str, volume: Path) -> bool:
    """Repeats MountPod, as pod_workers does."""
    try:
        return bool(actor.ask(MountPod(pod=pod(host("h", volume), uid=uid))).host_paths)
    except Refused:
        time.sleep(0.05)
        return False


STANDS_STILL = """
import os, time
from actors.volume.helper import pool
pool.CALL_S = 3.0
assign = pool.Pool._assign
def stand_still(self, one, job):
    assign(self, one, job)
    if any(getattr(step, "path", "").endswith("/slow") for step in job.steps):
        while not os.path.exists({done!r}):
            time.sleep(0.05)
        time.sleep(0.5)
pool.Pool._assign = stand_still
"""
"""CALL_S passes before the step is over. The mailbox thread looks at the helper after that, as on a machine that was
stopped meanwhile: in its mailbox the look comes before the answer. It stands still from the moment when the time of
CALL_S begins: an own message for that might come too late."""


def test_answer_of_a_killed_helper_completes_its_job(slow: Path) -> None:
    with started(SLOW.format(seconds=4.0) + STANDS_STILL.format(done=str(slow / "done"))) as actor:
        actor.tell(MountPod(pod=pod(host("h", slow))))
        wait_for((slow / "done").exists, 30, "the helper answers")
        actor.ask(Describe(), 30)
        wait_for(lambda: mounted(actor, UID, slow), 30, "the pod is not forgotten")
        assert actor.ask(Describe()).state["busy"] == []
        actor.ask(UnmountPod(pod_uid=UID))


CAUSES = [("os", "fork", 11), ("os", "fork", 12), ("socket", "socketpair", 24), ("os", "pidfd_open", 24)]


@pytest.fixture(params=CAUSES, ids=lambda one: f"{one[1]}-{one[2]}")
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ActorProcess, Path]]:
    """The actor, and a file: while it exists, no helper can start."""
    module, name, error = request.param
    marker = tmp_path / "full"
    prelude = FULL.format(marker=str(marker), module=module, name=name, error=error)
    with started(SLOW.format(seconds=1.0) + prelude) as actor:
        yield actor, marker


def children(actor: ActorProcess) -> list[str]:
    return Path(f"/proc/{actor.pid}/task/{actor.pid}/children").read_text().split()


def held_for_helpers(actor: ActorProcess) -> frozenset[str]:
    """Sockets and pidfds. Its threads open and close other files all the time: directories, its own stat."""
    links: set[str] = set()
    for one in os.scandir(f"/proc/{actor.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(one.path))
    return frozenset(link for link in links if link.startswith(("socket:", "anon_inode:[pidfd]", "pidfd:")))


def test_helper_that_cannot_start_fails_only_its_request(full: tuple[ActorProcess, Path]) -> None:
    actor, marker = full
    actor.ask(Describe())  # from then on it has the test's connection
    before = held_for_helpers(actor)
    marker.touch()
    for number in range(3):
        with pytest.raises(Refused, match="cannot start a helper"):
            actor.ask(MountPod(pod=pod(empty("e"), uid=f"pod-{number}")))
        assert actor.ask(GetVolumeUsages()).pods == (), "nor can a dedicated one"
        # A retry, or a look for a peer that is not there, has another socket for a moment.
        wait_for(lambda: held_for_helpers(actor) <= before, what="no socket and no pidfd stays open")
    assert alive(actor.pid)
    wait_for(lambda: not children(actor), what="no helper stays")
    marker.unlink()
    for number in range(3):
        actor.ask(UnmountPod(pod_uid=f"pod-{number}"))
    assert actor.ask(MountPod(pod=pod(empty("e")))).host_paths.keys() == {"e"}
    actor.ask(UnmountPod(pod_uid=UID))


def test_job_waits_for_a_busy_helper_when_no_other_starts(full: tuple[ActorProcess, Path], slow: Path) -> None:
    actor, marker = full
    actor.tell(MountPod(pod=pod(host("h", slow))))
    wait_for((slow / "begun").exists, what="the helper is busy")
    marker.touch()
    assert actor.ask(MountPod(pod=pod(empty("e"), uid="other"))).host_paths.keys() == {"e"}
    assert actor.ask(Describe()).state["helpers"]["forked"] == 1
    marker.unlink()
    for uid in (UID, "other"):
        actor.ask(UnmountPod(pod_uid=uid))
