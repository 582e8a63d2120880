"""NodeInfo, the node that admission checks pods against: labels, taints, allocatable resources, features.

These are the parts of the Node object that the kubelet registers (pkg/kubelet/kubelet_node_status.go, initialNode).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors._cgroup.quantities.allocatable import Amounts, allocatable, enforced
from actors._host.machine import Machine
from actors._host.node.selector import node_labels
from actors.pod_workers.admission.sysctls import Allowlist
from proto.agent.settings import Settings, Taint
from proto.cri import api_pb2 as pb


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """Features that the runtime reports in Status; older runtimes report none."""

    supplemental_groups_policy: bool = False
    user_namespaces: Mapping[str, bool] = field(default_factory=dict)
    """Name of a runtime handler to its support of user namespaces. The default handler's name is empty."""

    @classmethod
    def from_status(cls, status: pb.StatusResponse) -> RuntimeFeatures:
        """From CRI's Status."""
        return cls(
            supplemental_groups_policy=status.features.supplemental_groups_policy,
            user_namespaces={one.name: one.features.user_namespaces for one in status.runtime_handlers},
        )


@dataclass(frozen=True)
class NodeInfo:
    """The node that pods are checked against."""

    name: str
    labels: dict[str, str]
    allocatable: Amounts
    taints: tuple[Taint, ...] = ()
    sysctls: Allowlist = field(default_factory=lambda: Allowlist.of((), ""))
    app_armor: bool = False
    """The kernel enforces AppArmor profiles."""
    features: RuntimeFeatures = RuntimeFeatures()
    enforced: Mapping[str, int] = field(default_factory=dict)
    """Capacity less reservations, by resource: a resize to more never fits. One without has its allocatable amount."""
    compare_taint_values: bool = False
    """The feature gate TaintTolerationComparisonOperators: the operators Lt and Gt of tolerations have an effect."""


def node_info(settings: Settings, machine: Machine) -> NodeInfo:
    """NodeInfo from the settings and the machine. Raises QuantityError."""
    return NodeInfo(
        name=settings.node_name,
        labels=node_labels(settings.node_name, settings.node_labels),
        allocatable=allocatable(machine, settings),
        taints=settings.register_with_taints,
        sysctls=Allowlist.of(settings.allowed_unsafe_sysctls, os.uname().release),
        app_armor=app_armor_enabled(),
        enforced=enforced(machine, settings),
        compare_taint_values=settings.compare_taint_values,
    )


def app_armor_enabled() -> bool:
    """Return True when AppArmor is enabled in this kernel, by runc's test."""
    if not os.path.exists("/sys/kernel/security/apparmor"):
        return False
    try:
        with open("/sys/module/apparmor/parameters/enabled", "rb") as file:
            return file.read(1) == b"Y"
    except OSError:
        return False
