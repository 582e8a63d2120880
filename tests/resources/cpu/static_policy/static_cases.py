"""Builds a StaticPolicy and a State for upstream's cases, in which sets of CPUs are written as lists."""

from __future__ import annotations

from collections.abc import Mapping

from actors.resources.cpu.options import parse_options
from actors.resources.cpu.requests import Requests
from actors.resources.cpu.state import State
from actors.resources.cpu.static import StaticPolicy, reserved_cpus
from actors.resources.machine.cpusets import parse, printed
from actors.resources.machine.topology import Topology

OTHER = "other"
"""A container of the same pod that holds CPUs already."""


def policy(
    topology: Topology, *options: str, count: int = 0, reserved: str = "", pod_scope: bool = False
) -> StaticPolicy:
    """`options`: names of the options that are on. No CPU is reserved without `count` and `reserved`."""
    parsed = parse_options(dict.fromkeys(options, "true"), alpha=True)
    made = StaticPolicy(topology, parsed, frozenset(), Requests(pod_scope), pod_scope)
    if not count and not reserved:
        return made
    kept = reserved_cpus(made, parse(reserved), count)
    return StaticPolicy(topology, parsed, kept, Requests(pod_scope), pod_scope)


def state(shared: str, held: Mapping[str, str] | None = None, uid: str = "p") -> State:
    """`held`: CPUs by container."""
    containers = {name: parse(text) for name, text in (held or {}).items()}
    return State(parse(shared), {uid: containers} if containers else {})


def without(topology: Topology, cpus: str) -> str:
    return printed(topology.ids - parse(cpus))
