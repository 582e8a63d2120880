"""The search for a container runtime in a process of its own, and its output."""

from __future__ import annotations

import sys

import pytest

from supervisor.host.endpoint import NoRuntime, Runtime, find

FOUND = (
    '{"endpoint": "unix:///s", "runtime_name": "containerd", "runtime_version": "1.6", "api_version": "v1", '
    '"cgroup_driver": "systemd"}'
)


def saying(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_found_endpoint_is_returned() -> None:
    assert find(command=saying(f"print('{FOUND}')")) == Runtime("unix:///s", "containerd", "1.6", "v1", "systemd")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("""import sys; print('{"error": "no runtime, get one"}'); sys.exit(1)""", "^no runtime, get one$"),
        ("import sys; sys.exit('Traceback: boom')", "cannot look for a container runtime: Traceback: boom"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('[]')", "cannot look for a container runtime"),
        ("print('{}')", "cannot look for a container runtime"),
    ],
)
def test_missing_runtime_is_an_error(code: str, message: str) -> None:
    with pytest.raises(NoRuntime, match=message):
        find(command=saying(code))


def test_real_search_finds_a_runtime_or_gives_advice() -> None:
    try:
        said = find().endpoint
    except NoRuntime as error:
        said = str(error)
    assert said.startswith("unix:///") or "--container-runtime-endpoint" in said
