"""Reads the CPU topology from trees like /sys/devices/system."""

import os

import pytest

from actors.resources.machine.cpusets import CpuListError, parse, printed
from actors.resources.machine.sysfs import TopologyError, read_topology
from actors.resources.machine.topology import Cpu
from tests.resources.cpu.machines import CACHES_HT, DUAL_HT, DUAL_NO_HT, FOUR_WAY_HT, MULTI_NUMA_HT, SINGLE_HT


def write(root, path, content):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{content}\n")


def make_tree(root, topology, *, cache_key=None):
    """Core IDs repeat on each socket, as on most machines."""
    write(root, "cpu/online", printed(topology.ids))
    write(root, "cpu/present", printed(topology.ids))
    for number, cpu in topology.cpus.items():
        write(root, f"cpu/cpu{number}/topology/core_id", sorted(topology.in_sockets([cpu.socket])).index(cpu.core))
        write(root, f"cpu/cpu{number}/topology/physical_package_id", cpu.socket)
        if cache_key:
            shared = [other for other, its in topology.cpus.items() if cache_key(its) == cache_key(cpu)]
            write(root, f"cpu/cpu{number}/cache/index0/level", 1)
            write(root, f"cpu/cpu{number}/cache/index3/level", 3)
            write(root, f"cpu/cpu{number}/cache/index3/id", cpu.cache)
            write(root, f"cpu/cpu{number}/cache/index3/shared_cpu_list", printed(shared))
    for node in topology.nodes:
        write(root, f"node/node{node}/cpulist", printed(topology.in_nodes([node])))
    write(root, "node/has_cpu", "0")


def places(topology):
    return {number: (cpu.core, cpu.socket, cpu.node) for number, cpu in topology.cpus.items()}


@pytest.mark.parametrize("topology", [SINGLE_HT, DUAL_HT, DUAL_NO_HT, MULTI_NUMA_HT, FOUR_WAY_HT])
def test_machines_are_read_as_upstream_numbers_them(tmp_path, topology):
    make_tree(tmp_path, topology)
    found = read_topology(str(tmp_path))
    assert places(found) == places(topology)
    assert found.cpus_per_core == topology.cpus_per_core
    assert {cpu.cache for cpu in found.cpus.values()} == set(topology.sockets)


def test_cache_of_some_cores_of_a_node_is_an_uncore_cache(tmp_path):
    make_tree(tmp_path, CACHES_HT, cache_key=lambda cpu: cpu.cache)
    assert read_topology(str(tmp_path)).cpus == CACHES_HT.cpus


def test_cache_of_a_whole_node_counts_as_the_socket(tmp_path):
    make_tree(tmp_path, DUAL_HT, cache_key=lambda cpu: cpu.node)
    found = read_topology(str(tmp_path))
    assert all(cpu.cache == cpu.socket for cpu in found.cpus.values())


def test_offline_cpus_are_not_in_the_topology(tmp_path):
    make_tree(tmp_path, SINGLE_HT)
    write(tmp_path, "cpu/online", "0-2,4-7")
    found = read_topology(str(tmp_path))
    assert (found.ids, found.offline) == (parse("0-2,4-7"), parse("3"))
    assert found.cpus[7].core == 7


def test_kernel_without_numa_has_one_node(tmp_path):
    write(tmp_path, "cpu/online", "0-1")
    for number in (0, 1):
        write(tmp_path, f"cpu/cpu{number}/topology/physical_package_id", number)
        write(tmp_path, f"cpu/cpu{number}/topology/core_id", 0)
    assert read_topology(str(tmp_path)).cpus == {0: Cpu(0, 0, 0, 0), 1: Cpu(1, 1, 0, 1)}


def test_cpu_without_topology_is_a_core_of_its_own(tmp_path):
    write(tmp_path, "cpu/online", "0-1")
    assert read_topology(str(tmp_path)).cpus == {0: Cpu(0, 0, 0, 0), 1: Cpu(1, 0, 0, 0)}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("cpu/online", ""),
        ("cpu/online", "0-99999999"),
        ("cpu/online", "0-7" * 100_000),
        ("cpu/online", "7-0"),
        ("cpu/cpu0/topology/core_id", "x"),
        ("cpu/cpu0/topology/core_id", "1" * 99),
        ("node/node0/cpulist", "0-x"),
        ("cpu/cpu0/cache/index3/shared_cpu_list", "\0"),
    ],
)
def test_damaged_trees_are_refused_with_the_file(tmp_path, path, content):
    make_tree(tmp_path, SINGLE_HT, cache_key=lambda cpu: cpu.cache)
    write(tmp_path, path, content)
    with pytest.raises(TopologyError, match=path):
        read_topology(str(tmp_path))


def test_tree_without_cpus_is_refused(tmp_path):
    with pytest.raises(TopologyError, match="cpu/online"):
        read_topology(str(tmp_path))


def test_this_machine_has_the_cpus_of_the_kernel():
    assert len(read_topology().ids) == os.sysconf("SC_NPROCESSORS_ONLN")


@pytest.mark.parametrize("text", ["", "0", "0-3", "0,2,4", "0-3,8", "1-2,4,6-9"])
def test_lists_of_cpus_are_read_and_printed(text):
    assert printed(parse(text)) == text


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1,,2", "3-1", "0-65536", "1 ", "٣"])
def test_bad_lists_of_cpus_are_refused(text):
    with pytest.raises(CpuListError):
        parse(text)
