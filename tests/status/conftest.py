"""One Node at the API server for all tests of this package; each test begins and ends without pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.status.cluster import Cluster


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(control_plane, "status-node", tmp_path_factory.mktemp("status-node")) as made:
        yield made


@pytest.fixture
def cluster(node: Cluster) -> Iterator[Cluster]:
    """The status actor at a real API server."""
    yield node
    node.reset()
