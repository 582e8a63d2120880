from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proto.agent.settings import Settings
from tests.cgroups import own_cgroup_root


@pytest.fixture
def cgroup_root() -> Iterator[str]:
    with own_cgroup_root() as name:
        yield name


@pytest.fixture
def directory() -> Iterator[Path]:
    """With a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="nvo-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def settings(directory: Path, cgroup_root: str) -> Settings:
    """Of an agent with everything of its own."""
    return Settings(
        run_dir=f"{directory}/run",
        root_dir=f"{directory}/root",
        pod_logs_dir=f"{directory}/logs",
        container_logs_dir=f"{directory}/links",
        cgroup_root=cgroup_root,
    )
