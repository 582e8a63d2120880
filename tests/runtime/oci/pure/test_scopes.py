"""Properties of the scopes that containers of the helper have with the systemd driver."""

from typing import Any

import pytest

from actors._cgroup.systemd.properties import UNLIMITED
from actors.runtime.oci.scopes import properties


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {}),
        ({"cpu": {"shares": 1024}}, {"CPUWeight": 39}),
        ({"cpu": {"quota": 5_000}}, {"CPUQuotaPeriodUSec": 100_000, "CPUQuotaPerSecUSec": 50_000}),
        ({"cpu": {"quota": -1}}, {"CPUQuotaPeriodUSec": 100_000, "CPUQuotaPerSecUSec": UNLIMITED}),
        ({"cpu": {"cpus": "0,2-3", "mems": "1"}}, {"AllowedCPUs": b"\x0d", "AllowedMemoryNodes": b"\x02"}),
        ({"memory": {"limit": 100, "swap": 150}}, {"MemoryMax": 100, "MemorySwapMax": 50}),
        ({"memory": {"limit": 100, "swap": 100}}, {"MemoryMax": 100, "MemorySwapMax": 0}),
        ({"memory": {"limit": -1, "swap": -1}}, {"MemoryMax": UNLIMITED, "MemorySwapMax": UNLIMITED}),
        (
            {"unified": {"memory.high": "max", "memory.min": "7", "memory.oom.group": "1"}},
            {"MemoryHigh": UNLIMITED, "MemoryMin": 7},
        ),
        ({"hugepageLimits": [{"pageSize": "2MB", "limit": 0}], "devices": []}, {}),
    ],
)
def test_limits_have_their_properties_on_v2(resources: dict[str, Any], expected: dict[str, object]) -> None:
    assert {key: value for key, (_, value) in properties(resources, unified=True)} == expected


def test_limits_have_their_properties_on_v1() -> None:
    resources = {"cpu": {"shares": 2, "cpus": "0"}, "memory": {"limit": 100, "swap": 150}, "unified": {"a": "1"}}
    assert properties(resources, unified=False) == [("CPUShares", ("t", 2)), ("MemoryLimit", ("t", 100))]
