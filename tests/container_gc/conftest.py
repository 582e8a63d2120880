"""A runtime of lists, and the actor with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors._cgroup import fs
from actors._cgroup.hierarchy import hierarchy
from tests.container_gc.node import Node
from tests.image_gc.runtime import ListRuntime, list_runtime


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[ListRuntime]:
    with list_runtime(tmp_path) as runtime:
        yield runtime


@pytest.fixture
def node(tmp_path: Path, runtime: ListRuntime) -> Iterator[Node]:
    node = Node(tmp_path, runtime.endpoint)
    try:
        with node.actor:
            yield node
    finally:
        assert fs.remove(node.cgroup_root, hierarchy())
