"""Reports of devices' health, with their times."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors.resources.dra.health import HEALTHY, MOST_DEVICES, MOST_MESSAGE, TIMEOUT_S, UNHEALTHY, UNKNOWN, Health
from actors.resources.dra.manager import DraManager
from proto.plugins import drahealth_pb2 as pb


def report(name: str, state: int, message: str = "", timeout_s: int = 0) -> pb.DeviceHealth:
    return pb.DeviceHealth(
        device=pb.DeviceIdentifier(pool_name="p", device_name=name),
        health=state,  # type: ignore[arg-type]
        message=message,
        health_check_timeout_seconds=timeout_s,
    )


def test_a_report_counts_for_its_time() -> None:
    health = Health()
    health.update("d", "/a", [report("x", 1), report("y", 2, "hot", timeout_s=90), report("z", 7)], 100.0)
    assert health.of("d", "p", "x", 100.0 + TIMEOUT_S) == (HEALTHY, "")
    assert health.of("d", "p", "x", 100.1 + TIMEOUT_S) == (UNKNOWN, "")
    assert health.of("d", "p", "y", 190.0) == (UNHEALTHY, "hot")
    assert health.of("d", "p", "z", 100.0) == health.of("d", "p", "none", 100.0) == (UNKNOWN, "")


def test_devices_left_out_keep_their_report_for_its_time() -> None:
    health = Health()
    health.update("d", "/a", [report("x", 1)], 100.0)
    health.update("d", "/a", [report("y", 1)], 110.0)
    assert health.of("d", "p", "x", 110.0) == (HEALTHY, "")
    health.update("d", "/a", [], 200.0)
    assert health.of("d", "p", "x", 110.0) == (UNKNOWN, "")


def test_an_ending_plugin_takes_only_its_own_reports() -> None:
    health = Health()
    health.update("d", "/old", [report("x", 1)], 100.0)
    health.update("d", "/new", [report("x", 2)], 101.0)
    assert health.of("d", "p", "x", 102.0) == (UNHEALTHY, "")
    health.clear("d", "/old")
    assert health.of("d", "p", "x", 102.0) == (UNHEALTHY, "")
    health.clear("d", "/new")
    assert health.of("d", "p", "x", 102.0) == (UNKNOWN, "")


def test_hostile_reports_are_bounded() -> None:
    health = Health()
    health.update("d", "/a", [report("\x1b", 1), report("n" * 300, 1), report("x", 1, "m" * 5000, timeout_s=10**12)], 0)
    assert health.of("d", "p", "\x1b", 1.0) == (UNKNOWN, "")
    state, message = health.of("d", "p", "x", 86_400.0)
    assert (state, len(message), message[-3:]) == (HEALTHY, MOST_MESSAGE, "...")
    assert health.of("d", "p", "x", 86_401.0) == (UNKNOWN, "")


def test_names_beyond_the_bound_are_ignored_until_others_expire() -> None:
    health = Health()
    assert health.update("d", "/a", [report(f"x{at}", 1) for at in range(MOST_DEVICES)], 100.0)
    assert not health.update("d", "/a", [report("new", 1), report("x7", 2, timeout_s=90)], 101.0)
    assert health.of("d", "p", "new", 101.0) == (UNKNOWN, "")
    assert health.of("d", "p", "x7", 101.0) == (UNHEALTHY, "")
    assert health.update("d", "/b", [report("new", 1)], 101.0)
    assert health.update("d", "/a", [report("new", 1)], 101.0 + TIMEOUT_S)


class Dra(DraManager):
    """The manager, without streams, with plugins at the endpoint /a."""

    def __init__(self) -> None:
        actor: Any = SimpleNamespace(
            settings=SimpleNamespace(resource_health_status=False, root_dir="/none", kubeconfig="")
        )
        file: Any = None
        self.changes: list[str] = []
        super().__init__(actor, file, (), lambda: None, lambda: self.changes.append("health"), lambda: None)

    def replace(self) -> Any:
        self.plugins.deregister("d", "/a")
        with contextlib.suppress(StopIteration):
            self.plugins.register("d", "/a", ["v1.DRAPlugin"]).send(None)
        return self.plugins.at("d", "/a")


@pytest.fixture
def dra() -> Iterator[Dra]:
    made = Dra()
    yield made
    made.plugins.deregister("d", "/a")


def test_end_of_a_replaced_plugin_keeps_its_successors_reports(dra: Dra) -> None:
    former = dra.replace()
    dra._take_health(former, [report("x", 1)])
    plugin = dra.replace()
    dra._take_health(plugin, [report("x", 2)])
    dra._health_ended(former)
    assert dra.health.of("d", "p", "x", time.monotonic()) == (UNHEALTHY, "")
    dra._health_ended(plugin)
    assert dra.health.of("d", "p", "x", time.monotonic()) == (UNKNOWN, "")
    assert dra.changes == ["health"] * 3


def test_new_plugin_at_an_endpoint_starts_without_reports(dra: Dra) -> None:
    dra._take_health(dra.replace(), [report("x", 1)])
    dra.replace()
    assert dra.health.of("d", "p", "x", time.monotonic()) == (UNKNOWN, "")


def test_too_many_devices_are_logged_once(dra: Dra, caplog: pytest.LogCaptureFixture) -> None:
    plugin = dra.replace()
    with caplog.at_level(logging.WARNING):
        for at in range(3):
            dra._take_health(plugin, [report(f"{at}-{one}", 1) for one in range(MOST_DEVICES)])
    assert [one.message for one in caplog.records if "the others are ignored" in one.message] == [
        f"DRA driver d at /a reports the health of more than {MOST_DEVICES} devices; the others are ignored"
    ]
