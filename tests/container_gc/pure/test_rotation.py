"""Container log rotation: due logs, kept files, leftovers of an interrupted rotation, and deleted logs."""

from __future__ import annotations

import contextlib
import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors._base.messaging.futures import Future
from actors.container_gc import rotation
from actors.container_gc.listing import container_views
from actors.container_gc.rotation import Due, Plan, due_in, plan
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID, RESTART_COUNT


@pytest.mark.parametrize(
    ("sizes", "due"),
    [
        ({}, Due(frozenset(), frozenset())),
        ({"0.log": 99}, Due(frozenset(), frozenset())),
        ({"0.log": 100, "1.log": 5}, Due(frozenset({"/d/0.log"}), frozenset())),
        ({"0.log": 1, "0.log.20261120-133433": 500}, Due(frozenset(), frozenset())),
        ({"0.log.20261120-133433": 500}, Due(frozenset(), frozenset({"/d/0.log"}))),
        ({"other": 500, "0.log.tmp.gz": 1, "0.log": 1}, Due(frozenset(), frozenset())),
    ],
)
def test_due_logs_follow_from_names_and_sizes(sizes: dict[str, int], due: Due) -> None:
    assert due_in(sizes, "/d", 100) == due


A, B, C, D = (f"0.log.20261120-13343{number}" for number in range(4))


@pytest.mark.parametrize(
    ("names", "max_files", "wanted"),
    [
        ([], 5, Plan((), ())),
        ([A], 5, Plan((), (A,))),
        ([A + ".gz", B], 5, Plan((), (B,))),
        ([A + ".gz", B + ".gz", C], 4, Plan((A + ".gz",), (C,))),
        ([A + ".gz", B + ".gz", C + ".gz", D], 5, Plan((A + ".gz",), (D,))),
        ([A, B], 2, Plan((A, B), ())),
        ([A + ".tmp", A], 5, Plan((A + ".tmp",), (A,))),
        ([A + ".gz", A], 5, Plan((A,), ())),
    ],
)
def test_oldest_and_interrupted_files_go(names: list[str], max_files: int, wanted: Plan) -> None:
    assert plan(names, max_files) == wanted


@given(
    st.sets(st.sampled_from([name + end for name in (A, B, C, D) for end in ("", ".gz", ".tmp")])), st.integers(2, 6)
)
def test_after_a_rotation_there_are_no_more_files_than_allowed(names: set[str], max_files: int) -> None:
    found = plan(names, max_files)
    left = names - set(found.remove)
    assert len(left) <= max(0, max_files - 2)
    assert set(found.compress) == {name for name in left if not name.endswith(".gz")}
    assert not any(name.endswith(".tmp") for name in left)


def test_compressing_keeps_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "0.log.20261120-133433"
    path.write_bytes(os.urandom(1000) * 1000)
    path.chmod(0o640)
    content = path.read_bytes()
    rotation.compress(str(path))
    packed = tmp_path / "0.log.20261120-133433.gz"
    assert os.listdir(tmp_path) == [packed.name]
    assert gzip.decompress(packed.read_bytes()) == content
    assert packed.stat().st_mode & 0o777 == 0o640


def test_a_look_at_many_small_logs_is_cheap(tmp_path: Path) -> None:
    for number in range(100):
        directory = tmp_path / f"ns_pod-{number}_uid" / "c"
        directory.mkdir(parents=True)
        (directory / "0.log").write_bytes(b"x")
    settings = Settings(pod_logs_dir=str(tmp_path), container_log_max_bytes=100)
    looking = rotation.LogRotation(None, None, settings, set)  # type: ignore[arg-type]
    looking._due()
    began = time.thread_time()
    assert looking._due() == Due(frozenset(), frozenset())
    assert time.thread_time() - began < 0.1, "100 containers, every 10 s"


@pytest.mark.parametrize("workers", [1, 3])
def test_at_most_so_many_logs_are_rotated_at_once(workers: int) -> None:
    begun = []

    async def never_done(*_: object) -> None:
        begun.append(1)
        await Future()

    cri: Any = None
    logs = rotation.LogRotation(cri, never_done, Settings(container_log_max_workers=workers), set)
    rotations = [logs._rotate(f"/none/{number}.log", "c") for number in range(5)]
    for one in rotations:
        if one.send(None).done():  # it has a permit
            one.send(None)
    assert len(begun) == workers
    for one in rotations:
        one.close()


class Runtime:
    """A runtime with these containers, which creates a log that it opens."""

    def __init__(self, logs: Path, *containers: pb.Container) -> None:
        self.containers, self.listed = list(containers), 0
        self.opened: list[str] = []
        self._logs = logs

    async def list_containers(self) -> list[pb.Container]:
        self.listed += 1
        return self.containers

    async def reopen_container_log(self, identity: str) -> None:
        self.opened.append(identity)
        view = next(one for one in container_views(self.containers, str(self._logs)) if one.id == identity)
        Path(view.log_path).write_text("")


def instance(uid: str, attempt: int, state: Any = pb.CONTAINER_RUNNING) -> pb.Container:
    labels = {POD_UID: uid, POD_NAME: "p", POD_NAMESPACE: "ns", CONTAINER_NAME: "c"}
    return pb.Container(id=f"{uid}-{attempt}", state=state, labels=labels, annotations={RESTART_COUNT: str(attempt)})


class Rotating:
    """LogRotation over a directory. Pods whose UID begins with `foreign` are not ours."""

    def __init__(self, logs: Path, *containers: pb.Container) -> None:
        self.logs, self.runtime = logs, Runtime(logs, *containers)
        for one in container_views(containers, str(logs)):
            Path(one.log_path).parent.mkdir(parents=True, exist_ok=True)
            Path(one.log_path).write_text("x")
        cri: Any = self.runtime
        self._rotation = rotation.LogRotation(
            cri, self._blocking, Settings(pod_logs_dir=str(logs)), lambda uids: set(filter(self._is_own, uids))
        )

    @staticmethod
    def _is_own(uid: str) -> bool:
        return not uid.startswith("foreign")

    @staticmethod
    async def _blocking(_: float, function: Any, *args: Any) -> Any:
        return function(*args)

    def pass_over(self) -> None:
        """A full pass of the collection, which lists the runtime's containers anyway."""
        views = container_views(self.runtime.containers, str(self.logs))
        self._rotation.expect(one for one in views if self._is_own(one.pod_uid))

    def look(self) -> None:
        looking = self._rotation.rotate_due(lambda _: Future())
        with contextlib.suppress(StopIteration):
            while True:
                looking.send(None)  # every awaited future is complete

    def log(self, uid: str, attempt: int) -> Path:
        return self.logs / f"ns_p_{uid}" / "c" / f"{attempt}.log"


def test_deleted_log_of_a_running_container_is_opened_again(tmp_path: Path) -> None:
    rotating = Rotating(tmp_path, instance("a", 0, pb.CONTAINER_EXITED), instance("a", 1), instance("b", 0))
    rotating.pass_over()
    for uid, attempt in (("a", 1), ("b", 0)):
        rotating.log(uid, attempt).unlink()
    rotating.look()
    assert sorted(rotating.runtime.opened) == ["a-1", "b-0"]
    rotating.look()
    assert len(rotating.runtime.opened) == 2, "they are there"
    rotating.log("a", 1).unlink()
    rotating.look()
    assert rotating.runtime.opened[2:] == ["a-1"]


def test_the_runtime_is_not_asked_while_all_logs_are_there(tmp_path: Path) -> None:
    rotating = Rotating(tmp_path, instance("a", 0, pb.CONTAINER_EXITED), instance("a", 1))
    rotating.pass_over()
    rotating.log("a", 0).unlink()
    for _ in range(3):
        rotating.look()
    assert rotating.runtime.listed == 0


def test_log_of_a_container_that_ended_is_not_opened_again(tmp_path: Path) -> None:
    rotating = Rotating(tmp_path, instance("a", 0), instance("b", 0))
    rotating.pass_over()
    rotating.log("a", 0).unlink()
    rotating.runtime.containers = [instance("a", 0, pb.CONTAINER_EXITED), instance("b", 0)]
    for _ in range(3):
        rotating.look()
    assert (rotating.runtime.opened, rotating.runtime.listed) == ([], 1)


def test_deleted_log_of_a_foreign_pod_is_left_alone(tmp_path: Path) -> None:
    rotating = Rotating(tmp_path, instance("foreign", 0), instance("a", 0))
    rotating.pass_over()
    rotating.log("foreign", 0).unlink()
    rotating.look()
    assert (rotating.runtime.opened, rotating.runtime.listed) == ([], 0)
    rotating.log("a", 0).unlink()
    rotating.look()
    assert rotating.runtime.opened == ["a-0"]
