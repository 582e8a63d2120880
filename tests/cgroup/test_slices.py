"""Names and properties of slices."""

import pytest

from actors._cgroup.quantities.resources import PodLimits
from actors._cgroup.systemd.properties import UNLIMITED, cpu_mask, of_limits, of_unit, slice_of, slices_above


def test_units_of_a_cgroup_and_above_it() -> None:
    name = "/a.slice/a-kubepods.slice/a-kubepods-podx.slice"
    assert slice_of(name) == "a-kubepods-podx.slice"
    assert slices_above(name) == ["a.slice", "a-kubepods.slice"]
    assert dict(of_unit("a-kubepods.slice"))["Wants"] == ("as", ["a.slice"])


FULL = PodLimits(1024, 20_000, 100_000, 1 << 20, 99, 4096, (("2MB", 0),), "0-1")


@pytest.mark.parametrize(
    ("unified", "expected"),
    [
        (True, {"CPUWeight": 39, "MemoryMax": 1 << 20, "MemoryMin": 4096, "AllowedCPUs": b"\3"}),
        (False, {"CPUShares": 1024, "MemoryLimit": 1 << 20}),
    ],
)
def test_every_limit_has_its_property(unified: bool, expected: dict[str, object]) -> None:
    both = {"TasksMax": 99, "CPUQuotaPerSecUSec": 200_000, "CPUQuotaPeriodUSec": 100_000}
    assert {key: value for key, (_, value) in of_limits(FULL, unified=unified)} == expected | both
    assert of_limits(PodLimits(), unified=unified) == []


@pytest.mark.parametrize(
    ("quota", "period", "per_second"),
    [
        (1000, 100_000, 10_000),
        (1500, 100_000, 20_000),  # systemd knows whole percents
        (600_000, 100_000, 6_000_000),
        (1000, 30_000, 40_000),
        (-1, 100_000, UNLIMITED),
    ],
)
def test_quota_is_rounded_up_to_a_percent(quota: int, period: int, per_second: int) -> None:
    found = dict(of_limits(PodLimits(cpu_quota_us=quota, cpu_period_us=period), unified=True))
    assert found == {"CPUQuotaPeriodUSec": ("t", period), "CPUQuotaPerSecUSec": ("t", per_second)}


@pytest.mark.parametrize(("cpus", "mask"), [("0", b"\1"), ("0-3,8", b"\x0f\1"), ("9", b"\0\2")])
def test_cpu_mask_has_a_bit_for_each_cpu(cpus: str, mask: bytes) -> None:
    assert cpu_mask(cpus).rstrip(b"\0") == mask
