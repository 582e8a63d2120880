"""The read-only mount of the interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from actors._host.files.mounts import mounts_under
from actors.runtime.oci import interpreter

pytestmark = pytest.mark.needs("mounts")


@pytest.mark.parametrize("mode", [0o755, 0o644])
def test_interpreter_that_does_not_run_leaves_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    broken = tmp_path / "usr/bin/python3"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/false\n")
    broken.chmod(mode)
    monkeypatch.setattr(sys, "executable", str(broken))
    run = tmp_path / "run"
    run.mkdir()
    try:
        with pytest.raises(OSError, match="the interpreter does not run there"):
            interpreter.seal(run)
        assert mounts_under(str(run)) == []
    finally:
        interpreter.release(run)


def test_sealed_interpreter_is_read_only(tmp_path: Path) -> None:
    try:
        path = interpreter.seal(tmp_path)
        assert os.access(path, os.X_OK)
        assert not os.access(path, os.W_OK)
    finally:
        interpreter.release(tmp_path)
    assert mounts_under(str(tmp_path)) == []
