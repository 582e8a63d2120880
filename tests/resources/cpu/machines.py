"""The machines of upstream's table cases (pkg/kubelet/cm/cpumanager/policy_test.go)."""

from __future__ import annotations

from collections.abc import Callable

from actors.resources.machine.cpusets import parse
from actors.resources.machine.topology import Cpu, Topology


def machine(cpus: int, place: Callable[[int], tuple[int, ...]]) -> Topology:
    """`place` gives core, socket, node and, if it matters, L3 cache of a CPU."""
    return Topology({number: Cpu(*place(number)) for number in range(cpus)})


def regular(cores: int, per_socket: int, per_node: int, per_cache: int, threads: int = 2) -> Topology:
    """A machine whose n-th threads of all cores follow each other."""
    return machine(
        cores * threads,
        lambda n: (n % cores, n % cores // per_socket, n % cores // per_node, n % cores // per_cache),
    )


def _four_way() -> Topology:
    """Four sockets of 18 cores with four threads (Knights Landing)."""
    cores = [(c, c + 12, c + 24, c + 37) for c in range(1, 13)]
    cores += [(c, c + 60, c + 120, c + 180) for c in range(50, 108)]
    cores += [(0, 109, 169, 229), (37, 108, 168, 228)]
    sockets = [
        parse(text)
        for text in (
            "0-2,9-10,50,57-58,71-72,79-80,87-88,95-96,103-104",
            "3-4,11-12,51-52,59-60,65-66,73-74,81-82,89-90,97-98",
            "5-6,53-54,61-62,67-68,75-76,83-84,91-92,99-100,105-106",
            "7-8,37,55-56,63-64,69-70,77-78,85-86,93-94,101-102,107",
        )
    ]
    place = {
        cpu: (threads[0], socket, socket)
        for threads in cores
        for cpu in threads
        for socket, members in enumerate(sockets)
        if threads[0] in members
    }
    return machine(288, place.__getitem__)


SINGLE_HT = machine(8, lambda n: (n % 4, 0, 0))
DUAL_HT = machine(12, lambda n: (n % 6, n % 2, n % 2))
EIGHT = regular(8, 8, 8, 8, threads=1)
TWO_NODES = regular(8, 8, 4, 8, threads=1)
FOUR = regular(4, 4, 4, 4, threads=1)
TRIPLE_HT = machine(18, lambda n: (n // 2, (1, 0, 2)[n // 6], (1, 0, 2)[n // 6]))
DUAL_NO_HT = machine(8, lambda n: (n, n // 4, n // 4))
MULTI_NUMA_HT = machine(80, lambda n: (n % 40, n % 40 // 20, n % 40 // 10))
"""Two sockets of two NUMA nodes."""
MULTI_SOCKET_HT = machine(80, lambda n: (n % 40, n % 40 // 10, n % 40 // 20))
"""Two NUMA nodes of two sockets."""
LARGE_HT = machine(256, lambda n: (n % 128, n % 128 // 64, n % 128 // 16))
FOUR_WAY_HT = _four_way()
CACHES = regular(16, 16, 16, 4, threads=1)
CACHES_DUAL = regular(16, 8, 8, 4, threads=1)
CACHES_NUMA = regular(16, 16, 8, 4, threads=1)
CACHES_HT = regular(8, 8, 8, 4)
CACHES_SERVER = regular(192, 96, 96, 8)
CACHES_SMALL_HT = regular(64, 64, 64, 4)
CACHES_SMALL = regular(64, 64, 64, 4, threads=1)
CACHES_DUAL_64 = regular(64, 32, 32, 8, threads=1)
CACHES_LARGE_HT = regular(128, 128, 128, 8)
CACHES_LARGE = regular(128, 128, 128, 8, threads=1)
CACHES_NODES = regular(192, 96, 48, 8, threads=1)
CACHES_32 = regular(32, 32, 32, 8, threads=1)
ONE_CACHE_PER_SOCKET = regular(120, 60, 30, 60)
ONE_CACHE = regular(80, 80, 80, 80, threads=1)
HINTS = machine(12, lambda n: (n % 6, n % 6 // 3, n % 6 // 3))
"""The machine of topology_hints_test.go."""
