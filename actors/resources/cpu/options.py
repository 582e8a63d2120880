"""Options of the static policy (cpuManagerPolicyOptions), and which of them a feature gate guards.

Source: pkg/kubelet/cm/cpumanager/policy_options.go of Kubernetes 1.36. Messages are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.resources.errors import PolicyError
from actors.resources.machine.topology import Topology

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_ALIGN_BY_CACHE = "prefer-align-cpus-by-uncorecache"

_STAGES = {
    FULL_PCPUS_ONLY: "",
    DISTRIBUTE_ACROSS_NUMA: "Beta",
    STRICT_RESERVATION: "",
    PREFER_ALIGN_BY_CACHE: "",
    ALIGN_BY_SOCKET: "Alpha",
    DISTRIBUTE_ACROSS_CORES: "Alpha",
}
_TOGETHER = [
    *((name, DISTRIBUTE_ACROSS_CORES) for name in (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_NUMA, PREFER_ALIGN_BY_CACHE)),
    (PREFER_ALIGN_BY_CACHE, DISTRIBUTE_ACROSS_NUMA),
]
"""Pairs that exclude each other."""
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the static policy."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    prefer_align_by_cache: bool = False


def parse_options(given: Mapping[str, str], *, alpha: bool = False, beta: bool = True) -> Options:
    """Return the options. `alpha`, `beta`: the gates CPUManagerPolicyAlphaOptions and BetaOptions.

    Raises PolicyError.
    """
    values = {name: _value(name, text, alpha=alpha, beta=beta) for name, text in sorted(given.items())}
    for one, other in _TOGETHER:
        if values.get(one) and values.get(other):
            raise PolicyError(f"static policy options {one} and {other} can not be used at the same time")
    return Options(
        full_pcpus_only=values.get(FULL_PCPUS_ONLY, False),
        distribute_across_numa=values.get(DISTRIBUTE_ACROSS_NUMA, False),
        align_by_socket=values.get(ALIGN_BY_SOCKET, False),
        distribute_across_cores=values.get(DISTRIBUTE_ACROSS_CORES, False),
        strict_reservation=values.get(STRICT_RESERVATION, False),
        prefer_align_by_cache=values.get(PREFER_ALIGN_BY_CACHE, False),
    )


def check_fit(options: Options, topology: Topology, topology_policy: str) -> None:
    """Raise PolicyError if an option does not fit the topology manager's policy or this machine."""
    if not options.align_by_socket:
        return
    if topology_policy == "single-numa-node":
        raise PolicyError(
            f"Topology manager {topology_policy} policy is incompatible with CPUManager {ALIGN_BY_SOCKET} policy option"
        )
    if len(topology.sockets) > len(topology.nodes):
        raise PolicyError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def _value(name: str, text: str, *, alpha: bool, beta: bool) -> bool:
    stage = _STAGES.get(name)
    if stage is None:
        raise PolicyError(f'unknown CPU Manager Policy option: "{name}"')
    if (stage == "Alpha" and not alpha) or (stage == "Beta" and not beta):
        raise PolicyError(f'CPU Manager Policy {stage}-level Options not enabled, but option "{name}" provided')
    if text not in _BOOLEANS:
        raise PolicyError(f'bad value for option "{name}": strconv.ParseBool: parsing "{text}": invalid syntax')
    return _BOOLEANS[text]
