"""Checks the kernel parameters that a pod sets. Pure.

Source: pkg/kubelet/sysctl and https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from actors._host.node.sysctl import dotted
from actors._host.system import kernel_version
from proto.v1 import Pod

REASON = "SysctlForbidden"

Namespace = Literal["IPC", "Net"]

SAFE: dict[str, tuple[int, int]] = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.tcp_syncookies": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
}
"""Parameters that any pod may set, and the kernel version since which each is namespaced."""

_NAMESPACED: tuple[tuple[str, Namespace], ...] = (
    ("kernel.shm", "IPC"),
    ("kernel.msg", "IPC"),
    ("fs.mqueue.", "IPC"),
    ("net.", "Net"),
)


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Allowed names and prefixes, with the kernel namespace of each."""

    names: dict[str, Namespace]
    prefixes: dict[str, Namespace]

    @classmethod
    def of(cls, unsafe: Iterable[str], kernel_release: str) -> Allowlist:
        """The safe parameters of this kernel and those of allowedUnsafeSysctls.

        Parameters without a namespace are left out: the check of the configuration refuses them.
        """
        kernel = kernel_version(kernel_release)
        names: dict[str, Namespace] = {}
        prefixes: dict[str, Namespace] = {}
        for pattern in (*(name for name, since in SAFE.items() if kernel >= since), *map(dotted, unsafe)):
            name = pattern.removesuffix("*")
            namespace = namespace_of(name)
            if namespace is not None:
                (prefixes if pattern.endswith("*") else names)[name] = namespace
        return cls(names, prefixes)

    def problem(self, name: str, *, host_network: bool, host_ipc: bool) -> str:
        """The kubelet's message why a pod may not set it; empty if it may."""
        name = dotted(name)
        namespace = self.names.get(name)
        if namespace is None:
            namespace = next((one for prefix, one in self.prefixes.items() if name.startswith(prefix)), None)
        if namespace is None:
            return f'"{name}" not allowlisted'
        if (namespace == "IPC" and host_ipc) or (namespace == "Net" and host_network):
            return f'"{name}" not allowed with host {namespace} enabled'
        return ""


def forbidden(pod: Pod, allowed: Allowlist) -> str:
    """The rejection's message; empty if the pod may set all its parameters."""
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        problem = allowed.problem(
            sysctl.name, host_network=bool(pod.spec.host_network), host_ipc=bool(pod.spec.host_ipc)
        )
        if problem:
            return f"forbidden sysctl: {problem}"
    return ""


def namespace_of(name: str) -> Namespace | None:
    """The kernel namespace of a parameter; None if it applies to the whole machine."""
    if name == "kernel.sem":
        return "IPC"
    return next((namespace for prefix, namespace in _NAMESPACED if name.startswith(prefix)), None)
