from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A run directory with a path short enough for sockets, wherever pytest keeps its own."""
    path = Path(tempfile.mkdtemp(prefix="nv-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.delenv("NODEVISOR_RUN_DIR", raising=False)
    return CliRunner()
