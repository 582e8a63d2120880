"""Suites of this checkout where SELinux is enforcing, run by pytest in a guest of their own, as a service of systemd.

The service has the domain that etc/embedded-runtime.md asks for the agent's.
"""

import shlex

import pytest

from tests.guest.guest import CHECKOUT, Guest
from tests.guest.selection import only_if_selected

SUITES = ("tests/runtime/selinux",)
DOMAIN = "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023"
LOG = "/root/suite.log"
"""The policy lets no service write to a pipe of ssh."""


@only_if_selected("selinux")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", SUITES)
def test_suite_passes_where_selinux_is_enforcing(selinux_guest: Guest, suite: str) -> None:
    there = shlex.quote(str(selinux_guest.checkout))
    service = " ".join(
        (
            f"systemd-run -q --wait -p SELinuxContext={DOMAIN} -p WorkingDirectory={there}",
            f"-p StandardOutput=file:{LOG} -p StandardError=file:{LOG} -E HOME=/root -E NODEVISOR_TEST_PATIENCE=10",
        )
    )
    pytest_there = f"{there}/.venv/bin/python -m pytest -p no:cacheprovider -q -n 0 --timeout=1800 {suite}"
    done = selinux_guest.run(
        f"rm -f {LOG}; {service} {pytest_there}; code=$?; cat {LOG}; exit $code", 7000, check=False
    )
    if done.returncode != 0:
        denials = selinux_guest.run("journalctl -b -o cat | grep 'avc:  denied' | tail -n 30", check=False).stdout
        pytest.fail(f"{suite} failed in the guest:\n{done.stdout[-12000:]}\n{denials}", pytrace=False)


def test_each_module_that_needs_selinux_is_in_a_suite() -> None:
    asked = 'needs("' + 'SELinux"'
    modules = [path for path in (CHECKOUT / "tests").rglob("test_*.py") if asked in path.read_text()]
    names = [str(path.relative_to(CHECKOUT)) for path in modules]
    assert names
    assert [name for name in names if not name.startswith(SUITES)] == []
