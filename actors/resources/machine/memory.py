"""Reads the memory and the huge pages of the NUMA nodes from a tree like /sys.

Files: Documentation/ABI/stable/sysfs-devices-node of the kernel. The kubelet has these numbers from cAdvisor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
from actors._host.machine import scaled

SYS = "/sys"

_NODES = "devices/system/node"
_NODE = re.compile(r"node([0-9]{1,5})", re.ASCII)
_TOTAL = re.compile(r"^Node +[0-9]+ +MemTotal: +([0-9]{1,15}) kB$", re.ASCII | re.MULTILINE)
_PAGES = re.compile(r"hugepages-([0-9]{1,12})kB", re.ASCII)
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """The memory of a NUMA node in bytes."""

    total: int
    """With the huge pages."""
    huge_pages: dict[str, int] = field(default_factory=dict)
    """By resource (`hugepages-2Mi`); 0 for a size without pages."""


Memory = dict[int, NodeMemory]
"""By ID of the NUMA node."""


def read_memory(memory_bytes: int, root: str = SYS) -> Memory:
    """Return the memory of all NUMA nodes. `memory_bytes`: MemTotal, for a kernel without NUMA. Raises OSError."""
    found = {}
    for number in _numbers(root):
        directory = f"{root}/{_NODES}/node{number}"
        total = _TOTAL.search(_text(f"{directory}/meminfo"))
        if total is None:
            raise OSError(f"cannot read the memory of NUMA node {number}: {directory}/meminfo has no MemTotal")
        found[number] = NodeMemory(int(total[1]) * 1024, _huge_pages(f"{directory}/hugepages"))
    return found or {0: NodeMemory(memory_bytes, _huge_pages(f"{root}/kernel/mm/hugepages"))}


def _numbers(root: str) -> list[int]:
    entries = names(f"{root}/{_NODES}")
    return sorted(int(match[1]) for match in map(_NODE.fullmatch, entries) if match)


def _huge_pages(directory: str) -> dict[str, int]:
    sizes = sorted(int(match[1]) for match in map(_PAGES.fullmatch, names(directory)) if match)
    return {f"hugepages-{scaled(kib)}i": _pages(f"{directory}/hugepages-{kib}kB") * kib * 1024 for kib in sizes}


def _pages(directory: str) -> int:
    text = _text(f"{directory}/nr_hugepages").strip()
    if not (text.isdigit() and len(text) < 15):
        raise OSError(f"cannot read {directory}/nr_hugepages: {text[:40]!r} is no number")
    return int(text)


def _text(path: str) -> str:
    return read_regular(path, _MOST_BYTES).decode("ascii", "replace")
