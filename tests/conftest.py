"""Fixtures for more than one package of tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from actors._cri.client import Cri
from proto.wire.message import prepare_types
from tests.cgroups import DRIVER
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane, missing_kubectl
from tests.runtime.instance import EmbeddedInstance
from tests.suite.needs import NEEDS
from tests.suite.selection import TEST

# A machine that pauses makes examples slow, and none of them wrong.
settings.register_profile("unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_plugins = ["tests.suite.plugin"]

_RUNTIME = "NODEVISOR_TEST_RUNTIME"


def pytest_collection_finish() -> None:
    """While there is one thread: when two are the first to read a type at one time, msgspec ends the process (SIGSEGV).
    The forkserver does the same for the actors (actors._base.process.child)."""
    prepare_types()


@pytest.fixture(scope="session")
def containerd(request: pytest.FixtureRequest) -> Iterator[ContainerdInstance | EmbeddedInstance]:
    """A private containerd with the images BUSYBOX and PAUSE, one for each worker; tests remove their own pods.

    NODEVISOR_CONTAINERD=DIR takes containerd, ctr and shim of that directory, 1.6 or later, in place of the machine's.
    NODEVISOR_TEST_CGROUP_DRIVER=systemd is for machines with systemd.
    NODEVISOR_TEST_RUNTIME=embedded puts the embedded runtime in its place: the same tests are to have the same results.
    """
    if os.environ.get(_RUNTIME) == "embedded":
        yield request.getfixturevalue("embedded")
        return
    if problem := missing_requirements():
        pytest.fail(problem, pytrace=False)
    # The path is short because sockets below it have at most 107 bytes for theirs.
    directory = Path(tempfile.mkdtemp(prefix="nvctd-"))
    with ContainerdInstance(directory, systemd=DRIVER == "systemd") as instance:
        yield instance


@pytest.fixture(scope="session")
def embedded(request: pytest.FixtureRequest) -> Iterator[EmbeddedInstance]:
    """A private embedded runtime with the image BUSYBOX, one for each worker; tests remove their own pods.

    `make test` has it on its own bridge and isolation, as on a machine where nothing else is installed. Otherwise it
    uses CNI plug-ins and an OCI runtime where there are some.
    """
    directory = Path(tempfile.mkdtemp(prefix="nvrt-"))
    alone = request.config.getoption("--target") == TEST
    level = (2 if NEEDS["mounts"].is_met() else 3) if alone else 0
    with EmbeddedInstance(directory, isolation=level, cni=not alone, cgroup_driver=DRIVER) as instance:
        yield instance


@pytest.fixture
def cri(containerd: ContainerdInstance) -> Iterator[Cri]:
    """A CRI client of the private containerd; the pods that are there after the test are removed."""
    client = Cri(containerd.endpoint)
    yield client
    client.close()
    containerd.remove_pods()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real API server with its own etcd, one per worker. Tests use their own node and namespace names."""
    if problem := missing_control_plane():
        pytest.fail(problem, pytrace=False)
    with ControlPlane() as instance:
        yield instance


@pytest.fixture(scope="session")
def own_control_plane() -> None:
    """For tests that make a ControlPlane of their own: what it needs is there."""
    if problem := missing_control_plane():
        pytest.fail(problem, pytrace=False)


@pytest.fixture(scope="session")
def full_control_plane() -> Iterator[ControlPlane]:
    """A cluster of its own with controllers and scheduler, which would meddle with what other tests make by hand."""
    if problem := missing_control_plane() or missing_kubectl():
        pytest.fail(problem, pytrace=False)
    with ControlPlane(controllers=True) as instance:
        yield instance
