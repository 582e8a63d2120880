"""An instruction that cannot be carried out costs neither the other ones of its event nor a child's start."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import pytest

from supervisor.core.daemon import Daemon
from supervisor.supervision import transitions
from supervisor.supervision.transitions import Event, Fork, Instruction, Publish, RecordDeath


class Tree:
    """Returns a death's instructions for each event."""

    def handle(self, _event: Event, _now: float) -> list[Instruction]:
        return [RecordDeath("a", 1, "hung", "hangs", "", "", False), Publish(None), Fork("a", 2)]  # type: ignore[arg-type]


class Broken:
    """Raises in every call."""

    def __getattr__(self, name: str) -> Any:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")


class Forkserver:
    def __init__(self) -> None:
        self.forked: list[tuple[str, int]] = []

    def fork(self, name: str, incarnation: int) -> None:
        self.forked.append((name, incarnation))
        if len(self.forked) == 1:
            raise ValueError("the first request fails")


def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """Only what the queue of events uses."""
    made = Daemon.__new__(Daemon)
    made.tree, made.deaths, made.publisher = Tree(), Broken(), Broken()  # type: ignore[assignment]
    made.service, made.forkserver = Broken(), Forkserver()  # type: ignore[assignment]
    made._events, made._forks, made._save_due = deque(), [], None
    monkeypatch.setattr(made, "_save", lambda: None)
    return made


def test_failed_instruction_loses_no_fork(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    one = daemon(monkeypatch)
    one.forkserver.forked.append(("other", 1))  # type: ignore[attr-defined]
    one.push(transitions.Ended("a", 1, 9))
    with caplog.at_level(logging.ERROR):
        one._handle_events()
    assert one.forkserver.forked == [("other", 1), ("a", 2)]  # type: ignore[attr-defined]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["cannot carry out RecordDeath of Ended", "cannot carry out Publish of Ended"]


def test_failed_fork_loses_no_other_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    one = daemon(monkeypatch)
    one._dirty = False
    one._forks = [Fork("a", 1), Fork("b", 1)]
    with pytest.raises(ValueError, match="the first"):
        one._handle_events()
    one._handle_events()
    assert one.forkserver.forked == [("a", 1), ("b", 1)]  # type: ignore[attr-defined]
