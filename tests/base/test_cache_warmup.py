"""The forkserver's preparation before its first fork: it must leave nothing that a fork does not survive."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from actors._base import prefork
from actors._base.prefork import cache_warmup, heap
from actors._metrics.registry import take_all
from proto.agent.settings import Settings
from proto.wire.message import Message
from supervisor.process import forkserver


def test_warmup_leaves_neither_thread_nor_descriptor() -> None:
    threads, fds = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    cache_warmup.run(Settings(run_dir="/nonexistent"))
    assert set(threading.enumerate()) <= threads  # what others left may come to its end meanwhile
    assert set(os.listdir("/proc/self/fd")) <= fds
    assert take_all() == {}, "children begin to count at 0"


def test_warmup_handles_messages_as_an_actor_does(caplog: pytest.LogCaptureFixture) -> None:
    handled: list[Message] = []

    class Recorder(cache_warmup._WarmupActor):
        def _finish(self, *args: object) -> None:
            handled.append(args[2])  # type: ignore[arg-type]
            super()._finish(*args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(cache_warmup, "_WarmupActor", Recorder)
        cache_warmup.run(Settings(run_dir="/nonexistent"))
    assert len(handled) == 4 * cache_warmup.ROUNDS
    assert caplog.records == []


@pytest.mark.parametrize("switch", ["0", None])
def test_prefork_switch_leaves_warmup_and_filling_out(switch: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(cache_warmup, "run", lambda _: done.append("warm-up"))
    monkeypatch.setattr(heap, "fill", lambda: done.append("heap"))
    monkeypatch.delenv(prefork.SWITCH, raising=False)
    if switch is not None:
        monkeypatch.setenv(prefork.SWITCH, switch)
    prefork.prepare(Settings(run_dir="/nonexistent"))
    assert done == ([] if switch == "0" else ["warm-up", "heap"])


@pytest.mark.parametrize("entry", ["no.such.module:main", "tests.base.test_cache_warmup:main", "json:main"])
def test_failing_preparation_is_logged_and_stops_nothing(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    forkserver.prepare(entry, Settings(run_dir="/nonexistent"))
    assert len(caplog.records) == (0 if entry == "json:main" else 1)


def prepare(_: Settings) -> None:
    """Fails, in the place of an entry module's own function."""
    raise RuntimeError("not today")
