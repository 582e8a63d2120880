"""The checksum of cpu_manager_state: FNV-1a 32 over the file's struct as Go's spew prints it.

Sources: pkg/kubelet/checkpointmanager/checksum, k8s.io/apimachinery/pkg/util/dump, pkg/kubelet/cm/cpumanager/state.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors._host.files.hashing import fnv1a_32
from actors.resources.machine.cpusets import Cpus

_NAMES = ("CPUManagerCheckpoint", "CPUManagerCheckpointV2", "CPUManagerCheckpointV3")
"""The struct's names in kubelets of 1.18 and later. The first one is in all of them."""

Entries = Mapping[str, Mapping[str, str]]
"""List of CPUs by pod UID and container."""


def checksum(policy: str, default: str, entries: Entries, pods: Mapping[str, Cpus] | None) -> int:
    """Return the checksum to write. `pods`: only in version 3 of the format; None for version 2."""
    return _checksum(_NAMES[0], policy, default, entries, pods)


def is_valid(given: int, policy: str, default: str, entries: Entries, pods: Mapping[str, Cpus]) -> bool:
    """Return True for the checksum of any kubelet. 0 counts as valid without pods, as in the kubelet."""
    versions: list[Mapping[str, Cpus] | None] = [pods] if pods else [None, pods]
    known = {_checksum(name, policy, default, entries, each) for name in _NAMES for each in versions}
    return given in known or (given == 0 and not pods)


def _checksum(name: str, policy: str, default: str, entries: Entries, pods: Mapping[str, Cpus] | None) -> int:
    assigned = _map({uid: _map(containers) for uid, containers in entries.items()})
    own = ""
    if pods is not None:
        sets = {
            uid: f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){_set(cpus)}}}}}" for uid, cpus in pods.items()
        }
        own = f" PodEntries:(state.PodCPUAssignments){_map(sets)}"
    return fnv1a_32(
        f"(*state.{name}){{PolicyName:(string){policy} DefaultCPUSet:(string){default} "
        f"Entries:(map[string]map[string]string){assigned}{own} Checksum:(checksum.Checksum)0}}".encode()
    )


def _map(values: Mapping[str, str]) -> str:
    # Go sorts by bytes; UTF-8 keeps the order of code points, which is Python's.
    return f"map[{' '.join(f'{key}:{values[key]}' for key in sorted(values))}]"


def _set(cpus: Cpus) -> str:
    return f"map[{' '.join(f'{cpu}:{{}}' for cpu in sorted(cpus))}]"
