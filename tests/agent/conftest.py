"""An agent on the private containerd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.agent.agent import Agent
from tests.agent.api_source import ApiSource
from tests.agent.faults import Eye
from tests.agent.health import health_server
from tests.agent.ten_pods import TEN_PODS, all_settled
from tests.containerd import ContainerdInstance
from tests.harness import wait_for


@pytest.fixture
def agent(containerd: ContainerdInstance) -> Iterator[Agent]:
    """A started agent without pods."""
    with closing(Agent(containerd)) as one:
        one.start()
        yield one


@pytest.fixture(scope="module")
def settled(containerd: ContainerdInstance) -> Iterator[Agent]:
    """An agent on which the ten pods of `ten_pods` have come to their states."""
    with health_server() as port, closing(Agent(containerd)) as one:
        one.start()
        for name, manifest in TEN_PODS.items():
            one.write(name, manifest(port))
        wait_for(lambda: all_settled(one), 60, f"ten pods settle; log: {one.log}")
        yield one


@pytest.fixture(scope="module")
def eye(containerd: ContainerdInstance) -> Iterator[Eye]:
    """A started agent without pods, and a quick look at it and its runtime."""
    with closing(Agent(containerd)) as one:
        one.start()
        looking = Eye(one)
        with closing(looking.client):
            yield looking


@pytest.fixture(scope="module")
def api(containerd: ContainerdInstance) -> Iterator[ApiSource]:
    """A started agent without pods, whose API server the test is: `api.add(...)`, `api.agent`."""
    with closing(Agent(containerd, api=True)) as one:
        one.start()
        with closing(ApiSource(one)) as source:
            yield source
