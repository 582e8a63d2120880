"""A look asks for pods only when there may be new ones."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from actors.eviction import new_pods
from actors.eviction.new_pods import NewPods


@pytest.fixture
def pods(tmp_path: Path) -> NewPods:
    """They were listed, and nothing has happened since."""
    made = NewPods(str(tmp_path))
    assert made.may_be(), "nothing is known yet"
    made.begin()
    made.seen(time.monotonic())
    assert not made.may_be()
    return made


def test_new_directory_counts_until_the_pods_are_seen(pods: NewPods, tmp_path: Path) -> None:
    (tmp_path / "uid").mkdir()
    assert pods.may_be()
    assert pods.may_be(), "the request failed"
    pods.seen(time.monotonic())
    assert not pods.may_be()
    (tmp_path / "uid").rmdir()
    assert not pods.may_be()


def test_directory_that_was_made_during_the_request_counts(pods: NewPods, tmp_path: Path) -> None:
    began = time.monotonic()
    (tmp_path / "uid").mkdir()
    pods.seen(began)
    assert pods.may_be()


def test_nobody_is_sure_for_long(pods: NewPods, monkeypatch: pytest.MonkeyPatch) -> None:
    pods.seen(time.monotonic() - new_pods.SURE_S)
    assert pods.may_be()
    pods.seen(time.monotonic())
    assert not pods.may_be()
    monkeypatch.setattr(new_pods, "SURE_S", 0.0)
    pods.seen(time.monotonic())
    assert pods.may_be()


def test_replaced_directory_is_watched_again(pods: NewPods, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    assert pods.may_be()
    assert not pods.watches
    pods.begin()
    pods.seen(time.monotonic())
    assert pods.may_be(), "without a directory nobody is sure"
    tmp_path.mkdir()
    pods.begin()
    pods.seen(time.monotonic())
    assert not pods.may_be()
