"""The file dra_health_state, in the kubelet's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.resources.dra.health import HEALTHY, MOST_MESSAGE, MOST_TIMEOUT_S, UNHEALTHY, UNKNOWN, Health, Report
from actors.resources.dra.health_file import decode, encode
from tests.resources.dra.pure.test_health import report

WALL = 1_750_000_000.0
OF_A_KUBELET: dict[str, Any] = {
    "test-driver": {
        "Devices": {
            "pool-1/dev-1": {
                "PoolName": "pool-1",
                "DeviceName": "dev-1",
                "Health": "Unhealthy",
                "LastUpdated": "2025-06-15T17:06:30.123456789+02:00",
                "HealthCheckTimeout": 60_000_000_000,
                "Message": "too hot",
            }
        }
    }
}


def content(**changes: Any) -> bytes:
    device = OF_A_KUBELET["test-driver"]["Devices"]["pool-1/dev-1"] | changes
    return json.dumps({"d": {"Devices": {"pool-1/dev-1": device}}}).encode()


def test_file_of_a_kubelet_is_read() -> None:
    found = decode(json.dumps(OF_A_KUBELET).encode(), 100.0, WALL)
    (device,) = found["test-driver"].values()
    assert list(found["test-driver"]) == [("pool-1", "dev-1")]
    assert (device.health, device.message, device.within_s) == (UNHEALTHY, "too hot", 60.0)
    assert device.until == pytest.approx(150.123457, abs=1e-5)


def test_file_is_the_kubelets() -> None:
    written = encode({"test-driver": {("pool-1", "dev-1"): Report(HEALTHY, "", 150.5, 60.0)}}, 100.0, WALL)
    expected = {"Health": "Healthy", "LastUpdated": "2025-06-15T15:06:30.500000000Z", "Message": ""}
    device = OF_A_KUBELET["test-driver"]["Devices"]["pool-1/dev-1"] | expected
    assert json.loads(written) == {"test-driver": {"Devices": {"pool-1/dev-1": device}}}
    assert encode({}, 100.0, WALL) == b"{}"


def test_reports_are_the_same_after_a_round() -> None:
    health = Health()
    health.update("a", "/1", [report("x", 1), report("y", 2, "hot", timeout_s=90)], 100.0)
    health.update("a", "/2", [report("x", 2)], 101.0)
    health.update("b", "/3", [report("x", 3)], 20.0)
    found = decode(encode(health.by_driver(110.0), 110.0, WALL), 210.0, WALL)
    assert found["a"]["p", "x"] == pytest.approx((UNHEALTHY, "", 231.0, 30.0))
    assert found["a"]["p", "y"] == pytest.approx((UNHEALTHY, "hot", 290.0, 90.0))
    assert "b" not in found, "its report is too old"


@pytest.mark.parametrize(
    ("changes", "until"),
    [
        ({"LastUpdated": "2025-06-15T15:06:40Z"}, 160.0),
        ({"LastUpdated": "2025-06-15T15:05:40Z"}, None),
        ({"LastUpdated": "2025-06-15T15:06:40Z", "HealthCheckTimeout": 0}, 130.0),
        ({"LastUpdated": "2025-06-15T15:06:40Z", "HealthCheckTimeout": -5}, 130.0),
        ({"LastUpdated": "2026-06-15T15:06:40Z"}, 160.0),
        ({"LastUpdated": "0001-01-01T00:00:00Z"}, None),
    ],
)
def test_reports_count_for_the_rest_of_their_time(changes: dict[str, Any], until: float | None) -> None:
    found = decode(content(**changes), 100.0, WALL)
    assert [one.until for one in found.get("d", {}).values()] == ([] if until is None else [until])


@pytest.mark.parametrize(
    "damaged",
    [
        content(HealthCheckTimeout=10**400),
        content(HealthCheckTimeout=1 << 63),
        b"",
        b"[]",
        b"{",
        b'{"d":1}',
        content(LastUpdated="yesterday"),
        content(LastUpdated=1),
        content(PoolName=None),
    ],
)
def test_damaged_files_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(damaged, 100.0, WALL)


def test_restored_reports_give_way_to_the_drivers_own() -> None:
    health = Health()
    health.restore({"d": {("p", "x"): Report(UNHEALTHY, "hot", 900.0, 900.0), ("p", "y"): Report(HEALTHY, "", 130.0)}})
    assert health.of("d", "p", "x", 100.0) == (UNHEALTHY, "hot")
    health.update("d", "/1", [report("x", 1)], 101.0)
    assert health.of("d", "p", "x", 102.0) == (HEALTHY, "")
    assert health.of("d", "p", "y", 102.0) == (HEALTHY, "")
    health.forget("d", "/1")
    assert health.of("d", "p", "x", 102.0) == health.of("d", "p", "y", 102.0) == (UNKNOWN, "")
    assert health.by_driver(102.0) == {}


def test_restored_reports_are_bounded() -> None:
    health = Health()
    strange = Report("Fine", "m" * 5000, 10**9, 10**9)
    health.restore({"d": {("p", "x"): strange, ("p", "\x1b"): strange, ("", "x"): strange}})
    (found,) = health.by_driver(0.0)["d"].values()
    assert (found.health, len(found.message), found.until, found.within_s) == (
        UNKNOWN,
        MOST_MESSAGE,
        MOST_TIMEOUT_S,
        MOST_TIMEOUT_S,
    )


def test_version_grows_with_changes_alone() -> None:
    health, versions = Health(), []
    for at, devices in enumerate(([report("x", 1)], [report("x", 1)], [report("x", 2)], [report("x", 2, "hot")], [])):
        health.update("d", "/1", devices, float(at))
        versions.append(health.version)
    assert versions == [1, 1, 2, 3, 3]
    health.forget("d", "/1")
    assert health.version == 4
