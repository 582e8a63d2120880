"""An empty store for each test."""

from pathlib import Path

import pytest

from actors.runtime.images.limits import Limits
from actors.runtime.images.local.store import ImageStore


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store", Limits(reserve_bytes=0))
