"""Reports of devices' health, with their times."""

from __future__ import annotations

from actors.resources.dra.health import HEALTHY, MOST_MESSAGE, TIMEOUT_S, UNHEALTHY, UNKNOWN, Health
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
