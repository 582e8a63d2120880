"""Computes a pod's resolver settings. Pure.

Covers the four DNS policies, the node's resolv.conf, dnsConfig and the resolver's limits. Source:
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/ and pkg/kubelet/network/dns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from actors.pod_workers.model.view import node_families
from proto.v1 import Pod, PodDNSConfigOption

MAX_NAMESERVERS = 3
"""glibc's MAXNS: a resolver ignores the rest."""
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
MAX_SEARCH_LENGTH = 253
"""Of one search path; glibc aborts on longer ones."""
CLUSTER_OPTIONS = ("ndots:5",)
"""Names with fewer dots are tried with the search list first: `service.namespace.svc` must be."""


@dataclass(frozen=True, slots=True)
class DnsConfig:
    """Lines of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse_resolv_conf(text: str) -> DnsConfig:
    """Nameservers in order, the last search line, and the last value of each option. Other lines are skipped."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: dict[str, str] = {}
    for words in _lines(text):
        if words[0] == "nameserver" and len(words) > 1:
            servers.append(words[1])
        elif words[0] == "search":
            searches = tuple(word if word == "." else word.removesuffix(".") for word in words[1:])
        elif words[0] == "options":
            options |= {word.partition(":")[0]: word for word in words[1:]}
    return DnsConfig(tuple(servers), searches, tuple(options.values()))


def syntax_problem(text: str) -> str:
    """The kubelet's words, with their final space, for a nameserver line without an address; empty when it is fine.

    There no pod starts that needs the file. Here the line is skipped, as by a resolver.
    """
    return "nameserver list is empty " if ["nameserver"] in _lines(text) else ""


def host_problem(path: str, searches: tuple[str, ...], cluster_domain: str) -> str:
    """The kubelet's words for a resolv.conf at `path` with too many or too long search paths; empty when it is fine.

    A cluster's three search paths come before the node's.
    """
    most = MAX_SEARCHES - (3 if cluster_domain else 0)
    if len(searches) > most:
        return f"Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
    if any(len(search) > MAX_SEARCH_LENGTH for search in searches):
        return (
            f'Resolv.conf file "{path}" contains a search path which length is more than allowed {MAX_SEARCH_LENGTH} '
            "chars!"
        )
    if len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        return (
            f"Resolv.conf file '{path}' contains search line which length is more than allowed "
            f"{MAX_SEARCH_CHARACTERS} chars!"
        )
    return ""


def pod_dns(
    pod: Pod, cluster_dns: tuple[str, ...], cluster_domain: str, host: DnsConfig | None, node_ip: str = ""
) -> DnsConfig:
    """The pod's settings, not yet within the limits. ClusterFirst without a cluster DNS is the node's own.

    `host`: the node's resolv.conf. None for no such file (--resolv-conf ""): then the resolver is on the node itself.
    `node_ip`: --node-ip, whose families the resolver on the node has.
    """
    config = _by_policy(pod, cluster_dns, cluster_domain, host, node_ip)
    extra = pod.spec.dns_config
    if extra is not None:
        config = DnsConfig(
            _unique((*config.servers, *extra.nameservers)),
            _unique((*config.searches, *extra.searches)),
            _merged(config.options, extra.options),
        )
    return config


def wants_cluster_dns(pod: Pod) -> bool:
    """Return True for a policy that asks the cluster's DNS first."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)


def within_limits(config: DnsConfig) -> tuple[DnsConfig, tuple[str, ...]]:
    """(the settings cut to the resolver's limits, the kubelet's messages about the cuts)."""
    servers, searches = config.servers[:MAX_NAMESERVERS], _limited(config.searches)
    problems = []
    if servers != config.servers:
        problems.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
            + " ".join(servers)
        )
    if searches != config.searches:
        problems.append(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
            + " ".join(searches)
        )
    return DnsConfig(servers, searches, config.options), tuple(problems)


def _by_policy(
    pod: Pod, cluster_dns: tuple[str, ...], cluster_domain: str, host: DnsConfig | None, node_ip: str
) -> DnsConfig:
    if pod.spec.dns_policy == "None":
        return DnsConfig()
    if not (wants_cluster_dns(pod) and cluster_dns):
        return host if host is not None else _on_the_node(node_ip)
    searches = host.searches if host is not None else ()
    if cluster_domain:
        services = f"svc.{cluster_domain}"
        searches = _unique((f"{pod.metadata.namespace}.{services}", services, cluster_domain, *searches))
    return DnsConfig(cluster_dns, searches, CLUSTER_OPTIONS)


def _on_the_node(node_ip: str) -> DnsConfig:
    servers = tuple("::1" if family == 6 else "127.0.0.1" for family in node_families(node_ip))
    return DnsConfig(servers=servers, searches=(".",))


def _lines(text: str) -> Iterator[list[str]]:
    """The words of each line that is neither empty nor a comment."""
    return (words for line in text.splitlines() if (words := line.split()) and words[0][0] not in "#;")


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _merged(options: tuple[str, ...], extra: tuple[PodDNSConfigOption, ...]) -> tuple[str, ...]:
    """Options in order; the pod's own value replaces an earlier one."""
    merged = dict(option.partition(":")[::2] for option in options)
    merged |= {option.name or "": option.value or "" for option in extra}
    return tuple(f"{name}:{value}" if value else name for name, value in merged.items())


def _limited(searches: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    characters = -1  # they are joined by single spaces
    for search in searches[:MAX_SEARCHES]:
        if len(search) > MAX_SEARCH_LENGTH:
            continue
        characters += len(search) + 1
        if characters > MAX_SEARCH_CHARACTERS:
            break
        kept.append(search)
    return tuple(kept)
