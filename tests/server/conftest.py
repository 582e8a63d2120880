"""Servers for each test: with the table of routes, and with two simple routes; and a node's certificate."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.server.table import secure_table
from tests.controlplane.certificates import Authority
from tests.server.routes.here import Here
from tests.server.site import HELLO, Site, site, until
from tests.server.streaming.websockets import configure


@pytest.fixture
def here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Here]:
    """A server with its table. Afterwards no bridge runs, and no error was logged."""
    with site() as started:
        made = Here(started, tmp_path)
        configure(made, streaming_idle_timeout_s=0.0)
        made.use(secure_table(made.settings))
        yield made
        until(lambda: not any(task.name == "bridge" for task in list(started.loop.tasks)))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.fixture
def plain() -> Iterator[Site]:
    """A server with the routes HELLO, on a port without TLS."""
    with site(*HELLO) as made:
        yield made


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that issued a certificate `server` for the node."""
    made = Authority(tmp_path_factory.mktemp("pki") / "pki")
    made.issue("server", "node")
    return made
