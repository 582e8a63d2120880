"""Suites of this checkout, run by pytest in the guest."""

import pytest

from tests.guest.guest import Guest

SHORT = ("tests/cgroup",)
"""With every `make test-guest`."""


@pytest.mark.parametrize("suite", SHORT)
def test_suite_passes_on_systemd_and_cgroup_v2(guest: Guest, suite: str) -> None:
    done = guest.run(
        f"cd {guest.checkout} && .venv/bin/python -m pytest -p no:cacheprovider -q -n 0 --timeout=600 {suite}",
        1500,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{suite} failed in the guest:\n{done.stdout[-12000:]}", pytrace=False)
