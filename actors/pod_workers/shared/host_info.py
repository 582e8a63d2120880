"""What pod_workers finds out of its machine once, at its start."""

from __future__ import annotations

from dataclasses import dataclass

from actors._host.machine import Machine, look
from actors._host.node.addresses import host_ips
from actors.pod_workers.admission import NodeInfo, node_info
from actors.pod_workers.shared.userns import UserNamespaces, user_namespaces
from proto.agent.settings import Settings


@dataclass(frozen=True)
class HostInfo:
    """See the module."""

    machine: Machine
    info: NodeInfo
    userns: UserNamespaces
    host_ips: tuple[str, ...]


def read_host_info(settings: Settings) -> HostInfo:
    """Look. May block as the disk does. Raises OSError, QuantityError."""
    machine = look(settings.root_dir)
    return HostInfo(
        machine=machine,
        info=node_info(settings, machine),
        userns=user_namespaces(settings.root_dir, settings.user_namespace_ids_per_pod, settings.max_pods),
        host_ips=host_ips(settings.node_ip),
    )
