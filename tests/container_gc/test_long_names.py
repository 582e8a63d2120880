"""Removal of log directories whose name is as long as a file's name may be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors._host.files import trees
from actors.container_gc import removal
from actors.container_gc.policy import log_directory_uid

UID = "0b0f1f7e-1111-2222-3333-444444444444"


def test_logs_of_a_pod_with_a_long_name_go(tmp_path: Path) -> None:
    name = f"default_{'a' * (255 - len(UID) - 9)}_{UID}"
    (tmp_path / name / "c").mkdir(parents=True)
    (tmp_path / name / "c/0.log").write_text("x")
    assert len(name) == 255
    assert removal.remove_log_directories(str(tmp_path), [name]) == 1
    assert os.listdir(tmp_path) == []


def test_trash_that_stays_names_its_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "remove", lambda _: None)
    for name in (f"default_web_{UID}", f"other_web_{UID}", UID):
        (tmp_path / name).mkdir()
        assert removal.remove_log_directories(str(tmp_path), [name]) == 1
    trash = os.listdir(tmp_path)
    assert len(trash) == 3, "each has a name of its own"
    assert {log_directory_uid(name) for name in trash} == {UID}
    assert all(name.startswith(removal.TRASH) for name in trash)
    monkeypatch.undo()
    removal.remove_log_directories(str(tmp_path), trash)
    assert os.listdir(tmp_path) == []
