"""A scripted API server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.faulty_server import FaultyServer
from tests.node.node_actor import Server


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(Server()) as one:
        yield one
