"""Environment variables of Services: NAME_SERVICE_HOST and the like, and Docker's link variables. Pure.

Source: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables, pkg/kubelet/envvars and
getServiceEnvVarMap of pkg/kubelet/kubelet_pods.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto.v1.cluster import Service

MASTER_NAMESPACE = "default"
"""Namespace of the API server's Service. Every pod gets its variables, also without enableServiceLinks."""
MASTER_SERVICES = frozenset({"kubernetes"})


def service_variables(services: Iterable[Service], namespace: str, *, links: bool) -> dict[str, str]:
    """The variables for a pod of `namespace`; `links` is its enableServiceLinks. Sorted by Service."""
    chosen: dict[str, Service] = {}
    for service in sorted(services, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        meta = service.metadata
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        if meta.namespace == namespace and links:
            chosen[meta.name] = service  # the pod's own namespace wins
        elif meta.namespace == MASTER_NAMESPACE and meta.name in MASTER_SERVICES:
            chosen.setdefault(meta.name, service)
    variables: dict[str, str] = {}
    for name in sorted(chosen):
        variables.update(_variables(chosen[name]))
    return variables


def _variables(service: Service) -> dict[str, str]:
    address, ports = service.spec.cluster_ip, service.spec.ports
    prefix = _upper(service.metadata.name)
    found = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0].port)}
    for port in ports:
        if port.name:
            found[f"{prefix}_SERVICE_PORT_{_upper(port.name)}"] = str(port.port)
    for index, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{port.port}"
        if index == 0:
            found[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{port.port}_{protocol.upper()}"
        found[link] = url
        found[f"{link}_PROTO"] = protocol.lower()
        found[f"{link}_PORT"] = str(port.port)
        found[f"{link}_ADDR"] = address
    return found


def _upper(name: str) -> str:
    return name.replace("-", "_").upper()
