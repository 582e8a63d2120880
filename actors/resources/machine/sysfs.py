"""Reads the CPU topology from a tree like /sys/devices/system.

Numbers cores, sockets, NUMA nodes and L3 caches as cAdvisor does for the kubelet
(utils/sysinfo of github.com/google/cadvisor), since hints and state files hold those numbers.
Files: Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-devices-node of the kernel.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from actors._host.files.listing import names
from actors._host.files.untrusted_files import read_regular
from actors.resources.machine.cpusets import CpuListError, Cpus, parse
from actors.resources.machine.topology import Cpu, Topology

SYSTEM = "/sys/devices/system"

_MOST_BYTES = 64 * 1024
_NUMBER = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_NODE = re.compile(r"node([0-9]{1,5})", re.ASCII)
_CACHE = re.compile(r"index[0-9]{1,3}", re.ASCII)
_L3 = 3


class TopologyError(Exception):
    """The topology cannot be read; the message says which file and why."""


def read_topology(root: str = SYSTEM) -> Topology:
    """Return the CPUs online below `root`. Blocks on the file system. Raises TopologyError.

    A CPU without a directory `topology` is a core of its own in socket 0. A kernel without NUMA has one node 0, unlike
    with cAdvisor, which takes sockets for nodes there.
    """
    online = _cpu_list(root, "cpu/online")
    if not online:
        raise TopologyError(f"cannot read the CPU topology: {root}/cpu/online names no CPU")
    present = _cpu_list(root, "cpu/present") if os.path.exists(f"{root}/cpu/present") else online
    nodes = _nodes(root)
    placed = {number: _placed(root, number, nodes) for number in sorted(online)}
    cores: dict[tuple[int, int, int], int] = {}
    for number, cpu in placed.items():  # ascending: a core has the number of its lowest CPU
        cores.setdefault((cpu.node, cpu.socket, cpu.core), number)
    cpus = {
        number: replace(cpu, core=cores[cpu.node, cpu.socket, cpu.core], cache=cpu.socket)
        for number, cpu in placed.items()
    }
    return Topology(_with_caches(root, cpus), present - online)


def _placed(root: str, number: int, nodes: Mapping[int, int]) -> Cpu:
    socket = _number(root, f"cpu/cpu{number}/topology/physical_package_id", 0)
    core = _number(root, f"cpu/cpu{number}/topology/core_id", -1 - number)
    return Cpu(core=core, socket=socket, node=nodes.get(number, 0))


def _nodes(root: str) -> dict[int, int]:
    """NUMA node by CPU. Empty on a kernel without NUMA."""
    found: dict[int, int] = {}
    try:
        entries = names(f"{root}/node")
    except OSError:
        return found
    for match in filter(None, map(_NODE.fullmatch, entries)):
        found.update(dict.fromkeys(_cpu_list(root, f"node/{match[0]}/cpulist"), int(match[1])))
    return found


def _with_caches(root: str, cpus: dict[int, Cpu]) -> dict[int, Cpu]:
    """Set the cache of CPUs whose L3 cache does not serve exactly their NUMA node."""
    members: defaultdict[int, set[int]] = defaultdict(set)
    for number, cpu in cpus.items():
        members[cpu.node].add(number)
    found = dict(cpus)
    for number, cpu in cpus.items():
        cache = _l3(root, number)
        if cache is not None and len(cache[1] & cpus.keys()) != len(members[cpu.node]):
            found[number] = replace(cpu, cache=cache[0])
    return found


def _l3(root: str, number: int) -> tuple[int, Cpus] | None:
    """ID of the L3 cache of a CPU and the CPUs that share it; None without such a cache."""
    directory = f"cpu/cpu{number}/cache"
    try:
        entries = sorted(names(f"{root}/{directory}"))
    except OSError:
        return None
    for entry in filter(_CACHE.fullmatch, entries):
        if _number(root, f"{directory}/{entry}/level", 0) == _L3:
            shared = _cpu_list(root, f"{directory}/{entry}/shared_cpu_list")
            return _number(root, f"{directory}/{entry}/id", min(shared, default=number)), shared
    return None


def _number(root: str, path: str, absent: int) -> int:
    text = _text(root, path)
    if text is None:
        return absent
    if not _NUMBER.fullmatch(text):
        raise TopologyError(f"cannot read {root}/{path}: {text[:40]!r} is no number")
    return int(text)


def _cpu_list(root: str, path: str) -> Cpus:
    try:
        return parse(_text(root, path) or "")
    except CpuListError as error:
        raise TopologyError(f"cannot read {root}/{path}: {error}") from error


def _text(root: str, path: str) -> str | None:
    """The content of a file without white space around it; None when there is none."""
    try:
        return read_regular(f"{root}/{path}", _MOST_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TopologyError(f"cannot read {root}/{path}: {error.strerror}") from error
