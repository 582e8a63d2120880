"""Decisions about volumes that grow with their claims: the due growth, and reports of failures. Pure.

Amounts are quantities: the API server and `objects` have checked them.
Source: pkg/volume/util/operationexecutor/node_expander.go and pkg/volume/csi/expander.go of Kubernetes 1.36, KEP-1790.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from actors.volume.csi.policy import is_final
from actors.volume.steps.csi import Growth
from proto.v1.cluster import PersistentVolume, PersistentVolumeClaim
from proto.v1.scalars.base import Quantity
from proto.v1.scalars.quantity import value

GrowthPhase = Literal["NodeResizeError", "NodeResizeInfeasible"]
NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"
"""Annotation of a claim whose volume is grown by its controllers alone."""
_GROWS = frozenset({"", "NodeResizePending", "NodeResizeInProgress"})
"""States of a claim whose volume the node grows. Else the controllers are still at it, or it failed for good."""
_INFEASIBLE = frozenset({"InvalidArgument", "OutOfRange", "NotFound"})


@dataclass(frozen=True)
class DueGrowth:
    """Growth of a volume that its claim waits for."""

    bytes: int = 0
    """Size that the file system grows to; 0: no growth."""
    is_done: bool = False
    """The controllers have grown the volume, and leave nothing to the node."""


NOTHING = DueGrowth()


def storage_bytes(volume: PersistentVolume) -> int:
    """Capacity of a CSI volume in bytes; 0 for other volumes."""
    return value(volume.spec.capacity.get("storage", 0)) if volume.spec.csi is not None else 0


def due_growth(volume: PersistentVolume, claim: PersistentVolumeClaim, made_for: int) -> DueGrowth:
    """The growth that is due. `made_for`: bytes of the PersistentVolume for which the file system was made."""
    size, allocated, status = storage_bytes(volume), _allocated(claim), claim.status
    if not size:
        return NOTHING
    # A driver may round up, so that the PersistentVolume is larger than the controllers asked for.
    wanted = size if allocated is None else value(allocated)
    capacity, phase = status.capacity.get("storage"), status.allocated_resource_statuses.get("storage", "")
    is_smaller = capacity is not None and value(capacity) < wanted
    if phase or allocated is None:  # without both the controllers are older than KEP-1790
        is_due = (size > made_for or is_smaller) and phase in _GROWS
        return DueGrowth(wanted) if is_due else NOTHING
    if size <= made_for or is_smaller:
        return NOTHING
    # A volume on several nodes is grown on each of them, though its claim was told of the first.
    everywhere = "ReadWriteMany" in claim.spec.access_modes and NOT_REQUIRED not in claim.metadata.annotations
    return DueGrowth(wanted) if everywhere else DueGrowth(is_done=True)


def new_capacity(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """The capacity for the claim's status after the growth; empty when another node has told the claim."""
    allocated = _allocated(claim)
    if allocated is not None and "storage" not in claim.status.allocated_resource_statuses:
        return ""
    return str(volume.spec.capacity["storage"] if allocated is None else allocated)


def _allocated(claim: PersistentVolumeClaim) -> Quantity | None:
    """Size to which the controllers expand the volume; None if they tell none."""
    amount = claim.status.allocated_resources.get("storage")
    return None if amount is None or value(amount) <= 0 else amount


def failure_result(code: str) -> Literal["uncertain", "refused", "failed", "infeasible"]:
    """Result of a NodeExpandVolume that failed with this gRPC code (Go's name)."""
    if code == "FailedPrecondition":
        return "refused"
    if code in _INFEASIBLE:
        return "infeasible"
    return "failed" if is_final(code) else "uncertain"


def failure_message(result: Growth, error: str) -> str:
    """The kubelet's message for a failed NodeExpandVolume; `error`: the driver's."""
    return f"Expander.NodeExpand failed to expand the volume {'' if result == 'infeasible' else ': '}{error}"


def failure_phase(result: Growth, *, again: bool, withdrawn: bool) -> GrowthPhase | None:
    """State of a failed growth in the claim's status; None for none. `again`: it had failed before.

    `withdrawn`: the claim requests another size by now. Its owner takes the growth back, which the controllers only do
    once the node has given up.
    """
    if result not in ("refused", "failed", "infeasible"):
        return None
    given_up = result == "infeasible" or (again and withdrawn)
    return "NodeResizeInfeasible" if given_up else "NodeResizeError"
