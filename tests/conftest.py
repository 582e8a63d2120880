"""Fixtures for more than one package of tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cri.client import Cri
from tests.containerd import ContainerdInstance, missing_requirements
from tests.controlplane import ControlPlane, missing_control_plane

_SKIP = "NODEVISOR_SKIP_CONTAINERD"
_SKIP_CONTROL_PLANE = "NODEVISOR_SKIP_CONTROL_PLANE"


@pytest.fixture(scope="session")
def containerd() -> Iterator[ContainerdInstance]:
    """A private containerd with the images BUSYBOX and PAUSE, one for the whole run; tests remove their own pods."""
    if os.environ.get(_SKIP) == "1":
        pytest.skip(f"{_SKIP}=1")
    if problem := missing_requirements():
        pytest.fail(f"{problem} (or set {_SKIP}=1 to leave these tests out)", pytrace=False)
    # The path is short because sockets below it have at most 107 bytes for theirs.
    directory = Path(tempfile.mkdtemp(prefix="nvctd-"))
    with ContainerdInstance(directory) as instance:
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
    """A real API server on an etcd of its own, one for the whole run: tests use node and namespace names of their own,
    and leave it running."""
    if os.environ.get(_SKIP_CONTROL_PLANE) == "1":
        pytest.skip(f"{_SKIP_CONTROL_PLANE}=1")
    if problem := missing_control_plane():
        pytest.fail(f"{problem} (or set {_SKIP_CONTROL_PLANE}=1 to leave these tests out)", pytrace=False)
    with ControlPlane() as instance:
        yield instance
