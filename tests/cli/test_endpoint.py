"""Finding the runtime in a process of its own: what it may print, and what becomes of that."""

from __future__ import annotations

import sys

import pytest

from supervisor.host.endpoint import NoRuntime, Runtime, find

FOUND = '{"endpoint": "unix:///s", "runtime_name": "containerd", "runtime_version": "1.6", "api_version": "v1"}'


def saying(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_is_found_comes_back() -> None:
    assert find(saying(f"print('{FOUND}')")) == Runtime("unix:///s", "containerd", "1.6", "v1")


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
def test_what_is_not_found_is_said(code: str, message: str) -> None:
    with pytest.raises(NoRuntime, match=message):
        find(saying(code))


def test_the_real_search_says_what_it_found_or_how_to_get_one() -> None:
    try:
        said = find().endpoint
    except NoRuntime as error:
        said = str(error)
    assert said.startswith("unix:///") or "--container-runtime-endpoint" in said
