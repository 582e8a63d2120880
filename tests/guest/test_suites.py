"""Suites of this checkout, run by pytest in the guest.

`NODEVISOR_GUEST_SUITES=all` runs all of them on each runtime, for some two hours under emulation (`make long`). A part
of "SUITE@RUNTIME" selects: `NODEVISOR_GUEST_SUITES=resize` or `=@containerd-2`.
"""

import os

import pytest

from tests.guest.archives import CONTAINERD_2
from tests.guest.guest import CHECKOUT, Guest

OURS = ("tests/cgroup", "tests/agent/systemd", "tests/runtime/test_systemd_driver.py", "tests/server/test_journal.py")
"""The parts that differ there from a machine without systemd."""
RUNTIMES = {
    "containerd-1": "",
    "containerd-2": f"NODEVISOR_CONTAINERD=/{CONTAINERD_2}",
    "embedded": "NODEVISOR_TEST_RUNTIME=embedded",
}
FURTHER = (
    "tests/agent/lifecycle",
    "tests/agent/specs",
    "tests/agent/volumes/test_volumes.py",
    "tests/stats",
    "tests/eviction",
    "tests/volume",
)
"""On each runtime, with the systemd driver."""
SHORT = ("tests/agent/specs/test_resize.py@containerd-2",)
"""Of FURTHER, in each run."""
SELECTED = os.environ.get("NODEVISOR_GUEST_SUITES", "")
EVERY = [*(f"{suite}@{runtime}" for suite in FURTHER for runtime in RUNTIMES), "tests/runtime@embedded"]


def selected() -> tuple[str, ...]:
    """SUITE@RUNTIME of the further suites to run."""
    if not SELECTED:
        return SHORT
    return tuple(one for one in (*EVERY, *SHORT) if SELECTED == "all" or SELECTED in one)


def run(guest: Guest, suite: str, environment: str, timeout_s: float) -> None:
    pytest_there = ".venv/bin/python -m pytest -p no:cacheprovider -q -n 0 --timeout=600"
    done = guest.run(f"cd {guest.checkout} && {environment} {pytest_there} {suite}", timeout_s, check=False)
    if done.returncode != 0:
        pytest.fail(f"{suite} failed in the guest:\n{done.stdout[-12000:]}", pytrace=False)


@pytest.mark.parametrize("suite", OURS)
def test_suite_passes_on_systemd_and_cgroup_v2(guest: Guest, suite: str) -> None:
    run(guest, suite, "", 1500)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", selected())
def test_suite_passes_with_the_systemd_driver(guest: Guest, suite: str) -> None:
    path, _, runtime = suite.partition("@")
    run(guest, path, f"NODEVISOR_TEST_PATIENCE=8 NODEVISOR_TEST_CGROUP_DRIVER=systemd {RUNTIMES[runtime]}", 7000)


def test_each_module_that_needs_systemd_is_in_a_suite() -> None:
    asked = 'needs("' + 'systemd")'
    modules = [path for path in (CHECKOUT / "tests").rglob("test_*.py") if asked in path.read_text()]
    names = [str(path.relative_to(CHECKOUT)) for path in modules]
    assert [name for name in names if not name.startswith(OURS)] == []
