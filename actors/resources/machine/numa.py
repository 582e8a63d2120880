"""Reads the NUMA nodes of a machine and their distances, from a tree like /sys/devices/system.

Files: Documentation/ABI/stable/sysfs-devices-node of the kernel.
"""

from __future__ import annotations

import re

from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
from actors.resources.machine.sysfs import SYSTEM, TopologyError

_NODE = re.compile(r"node([0-9]{1,5})", re.ASCII)
_MOST_BYTES = 64 * 1024
_LOCAL = 10
"""The kernel's distance from a node to itself."""


def read_distances(root: str = SYSTEM) -> dict[int, dict[int, int]]:
    """Return the distance from each node to each, by ID. One node 0 on a kernel without NUMA. Raises TopologyError."""
    try:
        nodes = sorted(int(match[1]) for match in filter(None, map(_NODE.fullmatch, names(f"{root}/node"))))
    except OSError:
        nodes = []
    return {node: _of_node(root, node, nodes) for node in nodes} or {0: {0: _LOCAL}}


def _of_node(root: str, node: int, nodes: list[int]) -> dict[int, int]:
    path = f"{root}/node/node{node}/distance"
    try:
        found = [int(word) for word in read_regular(path, _MOST_BYTES).split()]
    except (OSError, ValueError) as error:
        raise TopologyError(f"cannot read {path}: {error}") from error
    if len(found) != len(nodes):
        raise TopologyError(f"cannot read {path}: it has {len(found)} distances for {len(nodes)} NUMA nodes")
    if any(distance < 0 for distance in found):
        raise TopologyError(f"cannot read {path}: it has a negative distance")
    return dict(zip(nodes, found, strict=True))
