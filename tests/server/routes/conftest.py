"""The table of routes on a server, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.server.table import secure_table
from tests.server.routes.here import Here
from tests.server.site import site


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with site() as started:
        made = Here(started, tmp_path)
        made.use(secure_table(made.settings))
        yield made
