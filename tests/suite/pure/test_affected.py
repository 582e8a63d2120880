"""The tests that `make check` runs."""

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.suite.affected import affected, folder_of, imports, module_name, of_package, read

TREE: dict[str, Collection[str]] = {
    "tests/harness.py": {"actors._base.messaging.futures"},
    "tests/probe/servers.py": {"tests.harness"},
    "tests/probe/test_network.py": {"actors.probe.network", "tests.probe.servers"},
    "tests/probe/pure/test_policy.py": {"actors.probe.policy"},
    "tests/kube/test_stream.py": {"actors._kube.connection.stream"},
    "tests/cli/test_start.py": {"supervisor.cli", "supervisor.cli.agent.start"},
    "tests/status/test_duties.py": {"actors.status.sync_actions", "actors.probe.policy"},
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["README.md", "etc/samples/web.yaml"], []),
        (["tests/cli/test_start.py"], ["tests/cli/test_start.py"]),
        (["tests/probe/servers.py"], ["tests/probe/test_network.py"]),
        (["tests/harness.py"], ["tests/probe/test_network.py"]),
        (["actors/_kube/connection/stream.py"], ["tests/kube/test_stream.py"]),
        (["supervisor/cli/agent/start.py"], ["tests/cli/test_start.py"]),
        (
            ["actors/probe/policy.py"],
            ["tests/probe/pure/test_policy.py", "tests/probe/test_network.py", "tests/status/test_duties.py"],
        ),
        (["tests/gone/test_gone.py"], []),
    ],
)
def test_changed_files_select_importers_and_their_packages_tests(changed: list[str], expected: list[str]) -> None:
    assert affected(changed, TREE) == expected


def test_package_has_its_folders_tests_and_importers() -> None:
    assert of_package("actors/probe/", TREE) == [
        "tests/probe/pure/test_policy.py", "tests/probe/test_network.py", "tests/status/test_duties.py",
    ]  # fmt: skip
    assert of_package("actors/_kube", TREE) == ["tests/kube/test_stream.py"]
    assert of_package("actors/nothing", TREE) == []


def test_names() -> None:
    assert (folder_of("actors/_kube"), folder_of("supervisor/cli"), folder_of("proto")) == ("kube", "cli", "proto")
    assert module_name("actors/probe/policy.py") == "actors.probe.policy"
    assert module_name("actors/probe/__init__.py") == "actors.probe"
    assert imports("import a.b\nfrom c import d\nfrom . import e\n") == {"a.b", "c", "c.d"}


def test_every_package_has_tests() -> None:
    """Else `make check` would run nothing for what changes there."""
    root = Path(__file__).resolve().parents[3]
    imported = read(root)
    packages = [path.parent for top in ("actors", "supervisor") for path in (root / top).glob("*/__init__.py")]
    names = [path.relative_to(root).as_posix() for path in packages]
    assert [name for name in names if not of_package(name, imported)] == []
