"""One service for all tests of this folder: each start takes a minute under emulation."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.guest.guest import Guest
from tests.guest.service.node import Node
from tests.guest.service.pods import SWAP


@pytest.fixture(scope="package")
def service(guest: Guest) -> Iterator[Node]:
    """A node with swap and without pods."""
    with guest.swap(), closing(Node(guest)) as node:
        node.start(**SWAP)
        yield node
