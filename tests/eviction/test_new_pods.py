"""A look asks for pods only when there may be new ones."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actors.eviction import new_pods
from actors.eviction.new_pods import NewPods, names_everyone, still_there
from proto.pods.pod_workers import PodWorkerState, PodWorkerStates
from tests.harness import wait_for


@pytest.fixture
def pods(tmp_path: Path) -> NewPods:
    """They were listed, and nothing has happened since."""
    made = NewPods(str(tmp_path))
    assert made.may_be(), "nothing is known yet"
    made.directories()
    made.seen(time.monotonic(), everyone=True)
    assert not made.may_be()
    return made


def test_new_directory_counts_until_the_pods_are_seen(pods: NewPods, tmp_path: Path) -> None:
    (tmp_path / "uid").mkdir()
    assert pods.may_be()
    assert pods.may_be(), "the request failed"
    pods.seen(time.monotonic(), everyone=False)
    assert pods.may_be(), "not the new one"
    pods.seen(time.monotonic(), everyone=True)
    assert not pods.may_be()
    (tmp_path / "uid").rmdir()
    assert not pods.may_be()


def test_directory_that_was_made_during_the_request_counts(pods: NewPods, tmp_path: Path) -> None:
    began = time.monotonic()
    (tmp_path / "uid").mkdir()
    pods.seen(began, everyone=True)
    assert pods.may_be()


def test_nobody_is_sure_for_long(pods: NewPods, monkeypatch: pytest.MonkeyPatch) -> None:
    pods.seen(time.monotonic() - new_pods.SURE_S, everyone=True)
    assert pods.may_be()
    pods.seen(time.monotonic(), everyone=True)
    assert not pods.may_be()
    monkeypatch.setattr(new_pods, "SURE_S", 0.0)
    pods.seen(time.monotonic(), everyone=True)
    assert pods.may_be()


def test_start_of_pod_workers_has_pods_listed_again(pods: NewPods) -> None:
    began = time.monotonic()
    pods.doubt()
    assert pods.may_be()
    pods.seen(began, everyone=True)
    assert pods.may_be(), "the former pod_workers listed them"
    pods.seen(time.monotonic(), everyone=True)
    assert not pods.may_be()


def test_removed_directory_is_watched_again(pods: NewPods, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    assert pods.may_be()
    assert pods.directories() is None
    pods.seen(time.monotonic(), everyone=True)
    assert pods.may_be(), "without a directory nobody is sure"
    tmp_path.mkdir()
    assert pods.directories() == frozenset()
    pods.seen(time.monotonic(), everyone=True)
    assert not pods.may_be()


def test_replaced_directory_is_watched_instead(tmp_path: Path) -> None:
    """Its parent was renamed, of which the watch tells nothing."""
    (tmp_path / "root/pods").mkdir(parents=True)
    pods = NewPods(f"{tmp_path}/root/pods")
    pods.directories()
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "root/pods/uid").mkdir(parents=True)
    assert pods.directories() == {"uid"}
    pods.seen(time.monotonic(), everyone=True)
    assert not pods.may_be()
    (tmp_path / "old/pods/other").mkdir()
    assert not pods.may_be()
    (tmp_path / "root/pods/new").mkdir()
    assert pods.may_be()


def test_only_pods_directories_are_listed(pods: NewPods, tmp_path: Path) -> None:
    (tmp_path / "uid").mkdir()
    (tmp_path / ".removed-0123").mkdir()
    (tmp_path / "file").touch()
    assert pods.directories() == {"uid"}


def test_one_call_at_a_time_hangs_on_the_disk(pods: NewPods, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir, answers = os.scandir, threading.Event()

    def slow(path: str) -> Any:
        answers.wait(60)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pods.directories)
        wait_for(pods.may_be, 10, "nobody is sure meanwhile")
        assert pods.directories() is None
        answers.set()
        assert first.result(10) == frozenset()
    assert not pods.may_be()


def answer(*uids: str, sources_ready: bool = True) -> PodWorkerStates:
    workers = (
        PodWorkerState(uid=uid, namespace="ns", name=uid, stage="sync", deleted=False, static=False) for uid in uids
    )
    return PodWorkerStates(pods=tuple(workers), sources_ready=sources_ready)


def test_only_a_complete_answer_names_everyone() -> None:
    assert names_everyone(answer(), ())
    assert names_everyone(answer("a", "b"), {"a"}), "b has no directory yet"
    assert not names_everyone(answer("a"), {"a", "b"})
    assert not names_everyone(answer("a", sources_ready=False), {"a"})
    assert not names_everyone(answer("a"), None)


def test_only_a_complete_answer_forgets_pods_without_a_directory() -> None:
    known = {"listed": 1, "on disk": 2, "gone": 3}
    assert still_there(known, answer("listed"), {"on disk"}) == {"listed": 1, "on disk": 2}
    assert still_there(known, answer("listed"), None) == {"listed": 1}
    assert still_there(known, answer(sources_ready=False), ()) == known
