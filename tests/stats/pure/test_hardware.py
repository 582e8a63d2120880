"""The cores and sockets of machines whose kernels tell them in different places."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.stats.pages.hardware import topology

X86 = """\
processor\t: {number}
model name\t: Some(R) Processor
physical id\t: {socket}
core id\t\t: {core}
"""
ARM = """\
processor\t: {number}
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU part\t: 0xd08
"""
PI_5 = [("0", "0"), ("0", "1"), ("0", "2"), ("0", "3")]
TWO_SOCKETS_OF_4_THREADS = [(str(socket), str(core)) for socket in (36, 292) for core in (0, 0, 0, 0, 1, 1, 1, 1)]
"""(physical_package_id, core_id) as ThunderX2's firmware numbers them."""
NO_PACKAGE = [("-1", "0"), ("-1", "1")]
"""A device tree without a cpu-map, before Linux 5.18."""


def cpuinfo(tmp_path: Path, text: str, places: list[tuple[str, str]]) -> str:
    path = tmp_path / "cpuinfo"
    path.write_text(
        "\n".join(text.format(number=n, socket=socket, core=core) for n, (socket, core) in enumerate(places))
    )
    return str(path)


def cpus(tmp_path: Path, places: list[tuple[str, str]]) -> str:
    for number, (socket, core) in enumerate(places):
        place = tmp_path / f"cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{socket}\n")
        (place / "core_id").write_text(f"{core}\n")
    (tmp_path / "cpu/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu/cpu99").mkdir()  # one that is off
    return str(tmp_path / "cpu")


@pytest.mark.parametrize(
    ("text", "places", "wanted"),
    [
        (X86, [("0", "0"), ("0", "0"), ("1", "0"), ("1", "0")], (2, 2)),
        (ARM, PI_5, (4, 1)),
        (ARM, TWO_SOCKETS_OF_4_THREADS, (4, 2)),
        (ARM, NO_PACKAGE, (2, 1)),
    ],
)
def test_cores_and_sockets_are_counted(
    tmp_path: Path, text: str, places: list[tuple[str, str]], wanted: tuple[int, int]
) -> None:
    assert topology(cpuinfo(tmp_path, text, places), cpus(tmp_path, places)) == wanted


def test_cpu_without_a_package_is_counted(tmp_path: Path) -> None:
    directory = cpus(tmp_path, PI_5)
    for path in tmp_path.glob("cpu/cpu*/topology/physical_package_id"):
        path.unlink()
    assert topology(cpuinfo(tmp_path, ARM, PI_5), directory) == (4, 1)


def test_machine_without_a_topology_has_its_cpus(tmp_path: Path) -> None:
    assert topology(str(tmp_path / "none"), str(tmp_path / "none")) == (os.cpu_count(), 1)
