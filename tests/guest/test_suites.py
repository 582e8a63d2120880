"""Suites of this checkout, run by pytest in the guest."""

import pytest

from tests.guest.guest import CHECKOUT, Guest

SUITES = ("tests/cgroup", "tests/agent/systemd", "tests/runtime/test_systemd_driver.py", "tests/server/test_journal.py")
"""The parts that differ there from a machine without systemd."""


@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes_on_systemd_and_cgroup_v2(guest: Guest, suite: str) -> None:
    done = guest.run(
        f"cd {guest.checkout} && .venv/bin/python -m pytest -p no:cacheprovider -q -n 0 --timeout=600 {suite}",
        1500,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{suite} failed in the guest:\n{done.stdout[-12000:]}", pytrace=False)


def test_each_module_that_needs_systemd_is_in_a_suite() -> None:
    asked = 'needs("' + 'systemd")'
    modules = [path for path in (CHECKOUT / "tests").rglob("test_*.py") if asked in path.read_text()]
    names = [str(path.relative_to(CHECKOUT)) for path in modules]
    assert [name for name in names if not name.startswith(SUITES)] == []
