"""Topology hints: the NUMA nodes that a provider can take a container's resource from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """One way to serve a request, or the merged choice of the topology manager."""

    nodes: frozenset[int] | None
    """IDs of NUMA nodes. None: any."""
    preferred: bool
    """The fewest nodes that can serve the request."""


Hints = Mapping[str, Sequence[Hint] | None]
"""By resource name. None: the provider has no preference. Empty: no set of nodes can serve the request."""

ANY = Hint(None, preferred=True)
