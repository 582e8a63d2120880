"""An agent on the private containerd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.agent.agent import Agent
from tests.agent.api_source import ApiSource
from tests.agent.faults import Eye, expect_nothing, expect_only
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
        (one.dir / "objects").mkdir()
        one.flags += ["--objects-dir", str(one.dir / "objects")]
        one.start()
        for name, manifest in TEN_PODS.items():
            one.write(name, manifest(port))
        wait_for(lambda: all_settled(one), 60, f"ten pods settle; log: {one.log}")
        yield one


@pytest.fixture(scope="module")
def eye(request: pytest.FixtureRequest, containerd: ContainerdInstance) -> Iterator[Eye]:
    """A started agent, and a quick look at it and its runtime.

    A module may have `prepare(agent)`, called before the start, and `flags(agent)`, further ones for it.
    """
    with closing(Agent(containerd)) as one:
        getattr(request.module, "prepare", lambda _: None)(one)
        one.start(*getattr(request.module, "flags", lambda _: ())(one))
        looking = Eye(one)
        with closing(looking.client):
            yield looking


@pytest.fixture
def clean(request: pytest.FixtureRequest, eye: Eye) -> Iterator[None]:
    """After each test, remove its pods and check that nothing is left, except for the module's `KEPT`."""
    yield
    kept = getattr(request.module, "KEPT", frozenset())
    for path in eye.agent.manifests.glob("*.yaml"):
        if path.stem not in kept:
            path.unlink()
    if kept:
        expect_only(eye, kept, 60)
    else:
        expect_nothing(eye, 60)


@pytest.fixture(scope="module")
def api(containerd: ContainerdInstance) -> Iterator[ApiSource]:
    """A started agent without pods, whose API server the test is: `api.add(...)`, `api.agent`."""
    with closing(Agent(containerd, api=True)) as one:
        one.start()
        with closing(ApiSource(one)) as source:
            yield source
