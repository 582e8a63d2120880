"""The runtimes that must behave alike: a test with the fixture `cri` runs on each."""

from collections.abc import Iterator

import pytest

from actors._cri.client import Cri


@pytest.fixture(params=["containerd", "embedded"])
def runtime_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cri(runtime_name: str, request: pytest.FixtureRequest) -> Iterator[Cri]:
    """A client of a private runtime; the pods that are there after the test are removed."""
    instance = request.getfixturevalue(runtime_name)
    client = Cri(instance.endpoint)
    yield client
    client.close()
    instance.remove_pods()
