"""The eviction actor, started for each test."""

from collections.abc import Iterator

import pytest

from tests.eviction.fake_node import FakeNode


@pytest.fixture
def fake() -> Iterator[FakeNode]:
    fake = FakeNode()
    with fake.actor:
        yield fake
