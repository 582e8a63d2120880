"""Computes the Node's capacity and allocatable of the machine, of device plugins and of an administrator. Pure.

An administrator adds an extended resource to the Node's capacity, and all of it can be allocated. Source:
https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/, MachineInfo in pkg/kubelet/nodestatus and
reconcileExtendedResource in pkg/kubelet/kubelet_node_status.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proto.node.node import SetDevices
from proto.v1.scalars.resource_name import is_extended


class Resources(NamedTuple):
    """Quantities by resource."""

    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


def resources(machine: Resources, stored: Mapping[str, Any], devices: SetDevices | None) -> Resources:
    """Return the resources of the next status. `stored` is the Node's status.

    No device plugin replaces a resource of the machine.
    `devices` is None until resources has told them. Any extended resource may be a plugin's then, and is repeated.
    """
    before = Resources(stored.get("capacity") or {}, stored.get("allocatable") or {})
    told = devices or SetDevices(capacity={}, allocatable={})
    plugins = Resources(_counts(told.capacity), _counts(told.allocatable))
    known = plugins.capacity.keys() | machine.capacity.keys()
    others = {name: amount for name, amount in before.capacity.items() if not _is_pages(name) and name not in known}
    repeated = {name: before.allocatable[name] for name in others if devices is None and name in before.allocatable}
    return Resources(
        {**others, **plugins.capacity, **machine.capacity},
        {**others, **repeated, **plugins.allocatable, **machine.allocatable},
    )


def _is_pages(name: str) -> bool:
    """True for a size of huge pages. The machine alone has these: a size that it lacks now goes from its Node."""
    return name.startswith("hugepages-")


def _counts(devices: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in sorted(devices.items())}


def patch_of(wanted: Resources, stored: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """The merge patch for both, by field, with null for what is to go.

    It leaves out capacity that is stored already: an administrator may change it between our read and our write.
    """
    capacity, allocatable = stored.get("capacity") or {}, stored.get("allocatable") or {}
    changed = {name: amount for name, amount in wanted.capacity.items() if capacity.get(name) != amount}
    stale = [name for name in capacity.keys() - wanted.capacity.keys() if _is_pages(name)]
    unbacked = [name for name in allocatable.keys() - wanted.allocatable.keys() if _is_pages(name) or is_extended(name)]
    return {
        "capacity": {**changed, **dict.fromkeys(stale)},
        "allocatable": {**wanted.allocatable, **dict.fromkeys(unbacked)},
    }


def reset_patch(stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """The patch that sets all extended resources to 0; None when there are none.

    For the Node of a machine that was replaced: it has none of them until a device plugin or an administrator says so.
    """
    zeros = {name: "0" for name in stored.get("capacity") or {} if is_extended(name)}
    return {"status": {"capacity": zeros, "allocatable": zeros}} if zeros else None
