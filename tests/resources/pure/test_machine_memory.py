"""NUMA memory and huge pages from trees like /sys."""

from pathlib import Path

import pytest

from actors.resources.machine.memory import NodeMemory, read_memory

MI = 1 << 20


def make_node(root: Path, number: int, mib: int, pages: tuple[int, int] = (0, 0)) -> None:
    directory = root / f"devices/system/node/node{number}"
    for kib, count in zip((2048, 1048576), pages, strict=True):
        size = directory / f"hugepages/hugepages-{kib}kB"
        size.mkdir(parents=True)
        (size / "nr_hugepages").write_text(f"{count}\n")
    kib = mib * 1024
    (directory / "meminfo").write_text(f"Node {number} MemTotal:  {kib} kB\nNode {number} MemFree:  17 kB\n")


def test_each_node_has_memory_and_pages(tmp_path: Path) -> None:
    make_node(tmp_path, 0, 4096, (3, 1))
    make_node(tmp_path, 2, 2048)
    (tmp_path / "devices/system/node/has_memory").write_text("0,2\n")
    assert read_memory(1, str(tmp_path)) == {
        0: NodeMemory(4096 * MI, {"hugepages-2Mi": 6 * MI, "hugepages-1Gi": 1024 * MI}),
        2: NodeMemory(2048 * MI, {"hugepages-2Mi": 0, "hugepages-1Gi": 0}),
    }


def test_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    size = tmp_path / "kernel/mm/hugepages/hugepages-2048kB"
    size.mkdir(parents=True)
    (size / "nr_hugepages").write_text("5\n")
    assert read_memory(7 * MI, str(tmp_path)) == {0: NodeMemory(7 * MI, {"hugepages-2Mi": 10 * MI})}


def test_kernel_without_huge_pages_has_none(tmp_path: Path) -> None:
    assert read_memory(7, str(tmp_path)) == {0: NodeMemory(7, {})}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("meminfo", "Node 0 MemFree: 1 kB\n"),
        ("meminfo", "Node 0 MemTotal: x kB\n"),
        ("hugepages/hugepages-2048kB/nr_hugepages", "many\n"),
        ("hugepages/hugepages-2048kB/nr_hugepages", "-1\n"),
    ],
)
def test_unreadable_figures_are_named(tmp_path: Path, file: str, content: str) -> None:
    make_node(tmp_path, 0, 1)
    (tmp_path / "devices/system/node/node0" / file).write_text(content)
    with pytest.raises(OSError, match=file):
        read_memory(1, str(tmp_path))
