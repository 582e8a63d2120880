"""The helpers of tests on a machine that stands still, and beside other workers."""

from __future__ import annotations

import sys
import time

import pytest

from tests import ports
from tests.harness import Stalls

STILL_S = 0.1


def test_stall_counts_before_its_own_thread_goes_on() -> None:
    with Stalls() as machine:
        time.sleep(0.05)
        before = sys.getswitchinterval()
        sys.setswitchinterval(10.0)  # no other thread of this process goes on, as when the machine stands still
        try:
            began = time.monotonic()
            while time.monotonic() < began + STILL_S:
                pass
            longest_s, was_still = machine.longest_s, machine.between(began, time.monotonic())
        finally:
            sys.setswitchinterval(before)
    assert longest_s > STILL_S / 2
    assert was_still
    longest_s = machine.longest_s
    time.sleep(0.2)
    assert machine.longest_s == longest_s, "nothing is added after the end"


def test_workers_hand_out_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    found: list[int] = []
    for number in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        own = ports._of_this_worker()
        found += own
        assert set(ports.free_ports(50)) <= set(own)
    assert len(found) == len(set(found))


def test_port_is_handed_out_once_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports, "_FEW", 10)
    monkeypatch.setattr(ports, "_of_this_worker", lambda: range(20_000, 20_300))
    found = [ports.free_port() for _ in range(200)]
    assert len(set(found)) == len(found)
    assert all(ports.free_port() for _ in range(400)), "then they begin again"
