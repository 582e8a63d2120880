"""`make test` on a machine where nothing is prepared: what it collects, and its real containers.

Root uses the environment that the ordinary user has set up, as `sudo make test` does: it takes half a minute to make.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fresh import steps
from tests.fresh.conftest import LOAD, SETUP_S
from tests.fresh.downloads.rootfs import USER, rootfs
from tests.fresh.machine import HOMES, Machine

pytestmark = [pytest.mark.needs("mmdebstrap", "root"), pytest.mark.timeout(900)]
CLONE = f"{HOMES[USER]}/{steps.CLONE}"
USERS = pytest.mark.parametrize("user", ["root", USER])


@pytest.fixture(scope="module")
def layers(shared: dict[str, Path]) -> Iterator[list[Path]]:
    """A clone with the development tools."""
    with Machine([rootfs()], shared, disk=True) as machine:
        steps.configure_pip(machine)
        steps.clone(machine, USER)
        with steps.index(machine):
            done = machine.run(["make", ".venv/.ready-dev"], USER, CLONE, timeout_s=2 * SETUP_S)
        assert done.returncode == 0, done.stdout
        machine.stop()
        yield [machine.layer, rootfs()]


@pytest.fixture
def tested(layers: list[Path], shared: dict[str, Path]) -> Iterator[Machine]:
    with Machine(layers, shared) as machine:
        yield machine


def make_test(machine: Machine, user: str, arguments: str, timeout_s: float) -> str:
    done = machine.run(["make", "test", f"PYTEST_ARGS={arguments}"], user, CLONE, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


@USERS
def test_make_test_collects_its_tests_without_an_error(tested: Machine, user: str) -> None:
    said = make_test(tested, user, "--collect-only -q -n 0", 60 * LOAD)
    found = re.search(r"^(\d+)(/\d+)? tests collected", said, re.MULTILINE)
    assert found, said[-2000:]
    assert int(found[1]) > 1000
    assert not re.search(r"\d+ errors?", found.string[found.start() :])


@USERS
def test_the_runtime_passes_its_tests_with_real_containers(tested: Machine, user: str) -> None:
    said = make_test(tested, user, "-q tests/runtime", 300 * LOAD)
    found = re.search(r"(\d+) passed", said)
    assert found, said[-2000:]
    assert int(found[1]) > 100
