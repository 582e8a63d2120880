"""Which processes are commands of containers of a former actor."""

import pytest

from actors.runtime.containers.orphaned_execs import is_in


@pytest.mark.parametrize(
    ("cgroup", "found"),
    [
        ("/pods/a/c", True),
        ("/pods/a/c/init", True),
        ("/pods/a/c/system.slice/x.service", True),
        ("/pods/a", False),
        ("/pods/a/c2", False),
        ("/", False),
        ("", False),
    ],
)
def test_cgroup_is_of_a_container(cgroup: str, found: bool) -> None:
    assert is_in(cgroup, {"/pods/a/c", "/pods/b/c"}) is found
