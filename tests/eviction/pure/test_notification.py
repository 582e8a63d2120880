"""Files whose notices wake eviction: by hierarchy."""

import pytest

from actors._cgroup.hierarchy import Hierarchy
from actors.eviction.notification import Source, sources

V2 = Hierarchy(unified=True, mounts={"": "/cg"})
HYBRID = Hierarchy(unified=False, mounts={"memory": "/cg/memory", "": "/cg/unified"})


@pytest.mark.parametrize(
    ("tree", "pods", "expected"),
    [
        (HYBRID, "/kubepods", []),  # v2 beside v1 limits nothing: v1 has an eventfd for usage
        (
            V2,
            "/kubepods.slice",
            [
                Source("stalls", "/proc/pressure/memory"),
                Source("stalls", "/cg/kubepods.slice/memory.pressure"),
                Source("events", "/cg/kubepods.slice/memory.events"),
            ],
        ),
    ],
)
def test_files_that_tell_of_short_memory(tree: Hierarchy, pods: str, expected: list[Source]) -> None:
    assert list(sources(tree, pods)) == expected
