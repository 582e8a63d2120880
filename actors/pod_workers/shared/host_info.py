"""What pod_workers finds out of its machine once, at its start."""

from __future__ import annotations

from dataclasses import dataclass

from actors._host.machine import Machine, read_machine
from actors._host.node.addresses import host_ips
from actors.pod_workers.admission import NodeInfo, node_info
from actors.pod_workers.shared.userns import UserNamespaces, user_namespaces
from proto.agent.settings import Settings


@dataclass(frozen=True)
class Facts:
    """See the module."""

    machine: Machine
    info: NodeInfo
    userns: UserNamespaces
    host_ips: tuple[str, ...]


def find(settings: Settings) -> Facts:
    """Look. May block as the disk does. Raises OSError, QuantityError."""
    machine = read_machine(settings.root_dir)
    return Facts(
        machine=machine,
        info=node_info(settings, machine),
        userns=user_namespaces(settings.root_dir, settings.user_namespace_ids_per_pod, settings.max_pods),
        host_ips=host_ips(settings.node_ip),
    )
