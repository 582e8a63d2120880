"""Leftovers of removals that cannot be removed."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.runtime.assembly import Runtime
from actors.runtime.model import disk
from actors.runtime.model.records import ContainerRecord, Records, SandboxRecord


def test_leftover_that_stays_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = SimpleNamespace(
        sandboxes=Records(tmp_path, "sandboxes", SandboxRecord),
        containers=Records(tmp_path, "containers", ContainerRecord),
        store=SimpleNamespace(clear_leftovers=lambda: None),
    )
    runtime: Any = SimpleNamespace(engine=engine, _clearing=threading.Lock())
    left = tmp_path / "trash" / "left"
    left.mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(16, "it is busy")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(disk.trees, "remove", refuse)
        Runtime.clear_leftovers(runtime)
    assert [record.getMessage() for record in caplog.records] == [f"cannot remove all of {left}: [Errno 16] it is busy"]
    Runtime.clear_leftovers(runtime)
    assert not left.exists()
