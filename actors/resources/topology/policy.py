"""The four policies of the topology manager, and its settings. Pure.

Source: https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/ and pkg/kubelet/cm/topologymanager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from actors.resources.model.hints import Hint, Hints
from actors.resources.topology.merge import Distances, filter_hints, merge

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_NODES = 8
"""Hints are sets of nodes, and their number doubles with each node."""

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class TopologyError(Exception):
    """The settings do not fit this machine. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one machine. Raises TopologyError."""

    policy: Policy = "none"
    scope: Scope = "container"
    options: Mapping[str, str] = field(default_factory=dict)
    """topologyManagerPolicyOptions as validated with the configuration."""
    numa_nodes: frozenset[int] = frozenset({0})
    distances: Distances = field(default_factory=dict)
    pod_level: bool = False
    """Gate PodLevelResourceManagers."""

    def __post_init__(self) -> None:
        if self.policy == "none":
            return
        most = max(DEFAULT_MAX_NODES, int(self.options.get(MAX_NODES, DEFAULT_MAX_NODES)))
        if len(self.numa_nodes) > most:
            raise TopologyError(
                f"cannot use topologyManagerPolicy {self.policy} on {len(self.numa_nodes)} NUMA nodes, the limit is "
                f"{most}; raise topologyManagerPolicyOptions[{MAX_NODES}], or set the policy none"
            )
        if self.closest and not all(b in self.distances.get(a, ()) for a in self.numa_nodes for b in self.numa_nodes):
            raise TopologyError(
                "cannot read the distances between the NUMA nodes of this machine; "
                f"remove topologyManagerPolicyOptions[{PREFER_CLOSEST}]"
            )

    @property
    def aligns(self) -> bool:
        """True if the resources of an admitted pod or container are within one NUMA node."""
        return self.policy == "single-numa-node"

    @property
    def closest(self) -> bool:
        """Close nodes win over low IDs. Has no effect on the policy single-numa-node."""
        return self.options.get(PREFER_CLOSEST, "") in _TRUE and self.policy != "single-numa-node"


def decide(providers: Iterable[Hints], settings: Settings) -> tuple[Hint, bool]:
    """Return the merged hint and whether the policy admits it. For every policy but none."""
    lists = filter_hints(providers)
    if settings.policy == "single-numa-node":
        return _single_node(lists, settings)
    hint = merge(lists, settings.numa_nodes, settings.distances if settings.closest else None)
    return hint, hint.preferred or settings.policy == "best-effort"


def _single_node(lists: Iterable[Sequence[Hint]], settings: Settings) -> tuple[Hint, bool]:
    single = [[hint for hint in hints if hint.preferred and _fits_one_node(hint)] for hints in lists]
    hint = merge(single, settings.numa_nodes)
    if hint.nodes == settings.numa_nodes:
        hint = Hint(None, hint.preferred)
    return hint, hint.preferred


def _fits_one_node(hint: Hint) -> bool:
    return hint.nodes is None or len(hint.nodes) == 1
