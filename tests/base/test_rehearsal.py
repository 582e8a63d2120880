"""What the forkserver plays before its first fork: it must leave nothing that a fork does not survive."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from actors._base.process import cache_warmup
from actors._metrics.registry import take_all
from proto.agent.settings import Settings
from proto.wire.message import Message
from supervisor.process import forkserver


def test_the_rehearsal_ends_by_itself_and_leaves_neither_thread_nor_descriptor() -> None:
    threads, fds = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    cache_warmup.rehearse(Settings(run_dir="/nonexistent"))
    assert set(threading.enumerate()) <= threads  # what others left may come to its end meanwhile
    assert set(os.listdir("/proc/self/fd")) <= fds
    assert take_all() == {}, "children begin to count at 0"


def test_the_rehearsal_handles_messages_as_an_actor_does(caplog: pytest.LogCaptureFixture) -> None:
    handled: list[Message] = []

    class Player(cache_warmup._Player):
        def _finish(self, *args: object) -> None:
            handled.append(args[2])  # type: ignore[arg-type]
            super()._finish(*args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(cache_warmup, "_Player", Player)
        cache_warmup.rehearse(Settings(run_dir="/nonexistent"))
    assert len(handled) == 4 * cache_warmup.ROUNDS
    assert caplog.records == []


@pytest.mark.parametrize("entry", ["no.such.module:main", "tests.base.test_rehearsal:main", "json:main"])
def test_a_failing_preparation_is_logged_and_stops_nothing(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    forkserver.prepare(entry, Settings(run_dir="/nonexistent"))
    assert len(caplog.records) == (0 if entry == "json:main" else 1)


def prepare(_: Settings) -> None:
    """As an entry's module has it, and failing."""
    raise RuntimeError("not today")
