"""Recognises commands that a former actor left in containers."""

import pytest

from actors.runtime.containers.orphaned_execs import containers_cgroup


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
    assert containers_cgroup(cgroup, {"/pods/a/c", "/pods/b/c"}) == ("/pods/a/c" if found else "")
