"""One guest for all tests of this folder. A worker that runs some of them runs all: a guest wants the whole machine."""

from collections.abc import Iterator

import pytest

from tests.guest.guest import Guest
from tests.guest.qemu.variants import SELINUX


@pytest.fixture(scope="session")
def guest() -> Iterator[Guest]:
    with Guest() as running:
        yield running


@pytest.fixture(scope="session")
def selinux_guest() -> Iterator[Guest]:
    with Guest(variant=SELINUX) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before the first test the guest is made ready, for minutes where the cache is empty."""
    for item in items:
        if {"guest", "selinux_guest"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(1800))
            item.add_marker(pytest.mark.xdist_group("guest"))
