"""Computes a pod's host name and domain. Pure.

Source: https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-hostname-and-subdomain-fields,
KEP-1797 (setHostnameAsFQDN) and KEP-4762 (hostnameOverride).
"""

from __future__ import annotations

from actors.pod_workers.environment.variables import ConfigError
from proto.v1 import Pod

MAX_LABEL = 63
"""Characters of a host name that is a DNS label."""
MAX_KERNEL = 64
"""__NEW_UTS_LEN."""


def hostname_and_domain(pod: Pod, cluster_domain: str) -> tuple[str, str]:
    """(host name, domain or empty). A name that is too long for a DNS label is cut.

    The API takes hostnameOverride with 64 characters; the kubelet cuts it, too (GeneratePodHostNameAndDomain).
    """
    spec = pod.spec
    name = spec.hostname_override or spec.hostname or pod.metadata.name
    if len(name) > MAX_LABEL:
        name = name[:MAX_LABEL].rstrip("-.")
    domain = ""
    if spec.subdomain and not spec.hostname_override:
        domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"
    return name, domain


def pod_hostname(pod: Pod, cluster_domain: str) -> str:
    """The kernel's host name: with setHostnameAsFQDN the full name. Raises ConfigError."""
    name, domain = hostname_and_domain(pod, cluster_domain)
    if not (pod.spec.set_hostname_as_fqdn and domain):
        return name
    whole = f"{name}.{domain}"
    if len(whole) > MAX_KERNEL:
        raise ConfigError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {whole} is too long "
            f"({MAX_KERNEL} characters is the max, {len(whole)} characters requested)"
        )
    return whole
