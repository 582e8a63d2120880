"""Which resolver settings a pod gets. Pure.

Covers the four DNS policies, the node's resolv.conf, dnsConfig and the resolver's limits. Source:
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/ and pkg/kubelet/network/dns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proto.v1 import Pod, PodDNSConfigOption

MAX_NAMESERVERS = 3
"""glibc's MAXNS: a resolver ignores the rest."""
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
CLUSTER_OPTIONS = ("ndots:5",)
"""Names with fewer dots are tried with the search list first: `service.namespace.svc` must be."""


@dataclass(frozen=True, slots=True)
class DnsConfig:
    """Lines of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse_resolv_conf(text: str) -> DnsConfig:
    """Nameservers in order, the last search line, all options. Lines it does not know are skipped, as by a resolver."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0][0] in "#;":
            continue
        if words[0] == "nameserver" and len(words) > 1:
            servers.append(words[1])
        elif words[0] == "search":
            searches = tuple(word if word == "." else word.removesuffix(".") for word in words[1:])
        elif words[0] == "options":
            options.extend(words[1:])
    return DnsConfig(tuple(servers), searches, tuple(options))


def pod_dns(pod: Pod, cluster_dns: tuple[str, ...], cluster_domain: str, host: DnsConfig) -> DnsConfig:
    """The pod's settings. ClusterFirst without a cluster DNS is the node's own, as in the kubelet."""
    config = _by_policy(pod, cluster_dns, cluster_domain, host)
    extra = pod.spec.dns_config
    if extra is not None:
        config = DnsConfig(
            _unique((*config.servers, *extra.nameservers)),
            _unique((*config.searches, *extra.searches)),
            _merged(config.options, extra.options),
        )
    return DnsConfig(config.servers[:MAX_NAMESERVERS], _limited(config.searches), config.options)


def _by_policy(pod: Pod, cluster_dns: tuple[str, ...], cluster_domain: str, host: DnsConfig) -> DnsConfig:
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "None":
        return DnsConfig()
    if policy == "Default" or (policy == "ClusterFirst" and pod.spec.host_network) or not cluster_dns:
        return host
    searches = host.searches
    if cluster_domain:
        services = f"svc.{cluster_domain}"
        searches = _unique((f"{pod.metadata.namespace}.{services}", services, cluster_domain, *host.searches))
    return DnsConfig(cluster_dns, searches, CLUSTER_OPTIONS)


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _merged(options: tuple[str, ...], extra: tuple[PodDNSConfigOption, ...]) -> tuple[str, ...]:
    """The pod's own value of an option replaces the other one in its place."""
    merged = dict(option.partition(":")[::2] for option in options)
    merged |= {option.name or "": option.value or "" for option in extra}
    return tuple(f"{name}:{value}" if value else name for name, value in merged.items())


def _limited(searches: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    characters = -1  # they are joined by single spaces
    for search in searches[:MAX_SEARCHES]:
        characters += len(search) + 1
        if characters > MAX_SEARCH_CHARACTERS:
            break
        kept.append(search)
    return tuple(kept)
