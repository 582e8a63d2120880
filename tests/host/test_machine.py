"""The machine's capacity and CPUs as sysfs has them."""

from __future__ import annotations

from pathlib import Path

from actors._host.machine import thermal_throttle_paths


def test_thermal_directories_of_cpus_are_found_by_number(tmp_path: Path) -> None:
    for name in ("cpu0", "cpu2", "cpu10"):
        (tmp_path / name / "thermal_throttle").mkdir(parents=True)
    for name in ("cpu1", "cpufreq/thermal_throttle", "cpu/thermal_throttle", "cpu3x/thermal_throttle"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cpu4").mkdir()
    (tmp_path / "cpu4/thermal_throttle").write_text("0")
    (tmp_path / "possible").write_text("0-1023")
    assert thermal_throttle_paths(str(tmp_path)) == tuple(f"{tmp_path}/cpu{n}/thermal_throttle" for n in (0, 2, 10))


def test_a_machine_without_thermal_directories_has_none(tmp_path: Path) -> None:
    (tmp_path / "cpu0").mkdir()
    assert thermal_throttle_paths(str(tmp_path)) == ()
    assert thermal_throttle_paths(str(tmp_path / "none")) == ()
