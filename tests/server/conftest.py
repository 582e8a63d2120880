"""A server's table; afterwards the fixture checks that no coroutine and no logged error remains."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.server.table import secure_table
from tests.server.routes.here import Here
from tests.server.site import site, until
from tests.server.streaming.websockets import configure


@pytest.fixture
def here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Here]:
    with site() as started:
        made = Here(started, tmp_path)
        configure(made, streaming_idle_timeout_s=0.0)
        made.use(secure_table(made.settings))
        yield made
        until(lambda: not any(task.name == "bridge" for task in list(started.loop.tasks)))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
