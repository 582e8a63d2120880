"""Suites of this checkout, run by pytest in the guest: SUITE, or SUITE@RUNTIME (see tests.guest.selection)."""

import pytest

from tests.guest.guest import CHECKOUT, Guest
from tests.guest.qemu.archives import CONTAINERD_2
from tests.guest.selection import SELECTED, is_selected

OURS = (
    "tests/cgroup",
    "tests/agent/systemd",
    "tests/runtime/oci/test_systemd_driver.py",
    "tests/runtime/sandboxes/test_oci_choice.py",
    "tests/server/routes/test_journal.py",
)
"""The parts that differ there from a machine without systemd, on containerd 1.6."""
RUNTIMES = {
    "containerd-1": "",
    "containerd-2": f"NODEVISOR_CONTAINERD=/{CONTAINERD_2}",
    "embedded": "NODEVISOR_TEST_RUNTIME=embedded",
}
ON_RUNTIMES = ("tests/agent/specs", "tests/agent/lifecycle", "tests/agent/volumes", "tests/agent/pressure")
"""On each runtime, with the systemd driver."""
ONCE = ("tests/stats", "tests/eviction", "tests/volume")
"""No runtime is their subject."""
EVERY = [
    *OURS,
    *(f"{suite}@{runtime}" for runtime in RUNTIMES for suite in ON_RUNTIMES),
    *(f"{suite}@containerd-1" for suite in ONCE),
    "tests/runtime@embedded",
]
ON_TWO_CPUS = "-n 2 --dist loadgroup --no-loadscope-reorder"
"""Tests wait for half of their time. One after the other, the suites of a runtime take twice as long."""
SHORT = {"tests/agent/systemd": "-k 'after_the_start or after_a_resize or after_a_reload'"}
"""Specs of a suite in the short set. Each further start of an agent takes half a minute there."""


def selected() -> tuple[str, ...]:
    """The suites to run."""
    return tuple(one for one in EVERY if is_selected(one)) if SELECTED else OURS


def run(guest: Guest, suite: str, environment: str, workers: str, timeout_s: float) -> None:
    pytest_there = f".venv/bin/python -m pytest -p no:cacheprovider -q {workers} --timeout=1800"
    done = guest.run(f"cd {guest.checkout} && {environment} {pytest_there} {suite}", timeout_s, check=False)
    if done.returncode != 0:
        pytest.fail(f"{suite} failed in the guest:\n{done.stdout[-12000:]}", pytrace=False)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", selected())
def test_suite_passes_on_systemd_and_cgroup_v2(guest: Guest, suite: str) -> None:
    path, _, runtime = suite.partition("@")
    if runtime:
        chosen = f"NODEVISOR_TEST_PATIENCE=10 NODEVISOR_TEST_CGROUP_DRIVER=systemd {RUNTIMES[runtime]}"
        run(guest, path, chosen, ON_TWO_CPUS, 7000)
    else:
        run(guest, path if SELECTED else f"{path} {SHORT.get(path, '')}", "", "-n 0", 7000)


def test_each_module_that_needs_systemd_is_in_a_suite() -> None:
    asked = 'needs("' + 'systemd")'
    modules = [path for path in (CHECKOUT / "tests").rglob("test_*.py") if asked in path.read_text()]
    names = [str(path.relative_to(CHECKOUT)) for path in modules]
    assert [name for name in names if not name.startswith(OURS)] == []
