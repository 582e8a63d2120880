"""Rules of addresses, networks, names and endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proto.node.runtime import EMBEDDED
from supervisor.config.kubeletconfig.problems import Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
_MAX_LABEL, _MAX_DOMAIN = 63, 253
CLIENT_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "trailer", "accept-encoding", "connection"})
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in addresses and names."""
    yield from _address("address", config.address)
    yield from _address("healthzBindAddress", config.healthz_bind_address)
    for index, server in enumerate(config.cluster_dns or ()):
        yield from _address(f"clusterDNS[{index}]", server)
    if config.cluster_domain and not is_domain(config.cluster_domain):
        problem = f"must be a DNS domain such as cluster.local, not {config.cluster_domain[:60]!r}"
        yield Problem("clusterDomain", problem)
    yield from _pod_cidr(config.pod_cidr)
    yield from _endpoint("containerRuntimeEndpoint", config.container_runtime_endpoint)
    if not config.container_runtime_endpoint:
        yield Problem("containerRuntimeEndpoint", "must not be empty")
    yield from _endpoint("imageServiceEndpoint", config.image_service_endpoint)
    yield from _pod_url(config)


def warnings(config: KubeletConfiguration) -> Iterator[Problem]:
    """Warnings of headers that the client sets by itself. The kubelet's leaves most of them out silently."""
    for name in config.static_pod_url_header or {}:
        if name.lower() in CLIENT_HEADERS:
            yield Problem("staticPodURLHeader", f"{name} is not sent, because the client sets it by itself")


def is_domain(name: str) -> bool:
    """True for a DNS-1123 subdomain, also with upper case and a final dot, as resolvers accept them."""
    name = name.removesuffix(".")
    return len(name) <= _MAX_DOMAIN and all(
        len(label) <= _MAX_LABEL and _DNS_LABEL.fullmatch(label) for label in name.split(".")
    )


def _address(path: str, text: str) -> Iterator[Problem]:
    if text in ("0.0.0.0", "127.0.0.1"):
        return  # the defaults, without an import of the parser
    import ipaddress  # noqa: PLC0415

    try:
        ipaddress.ip_address(text)
        bad = "%" in text  # the kubelet refuses addresses with a zone
    except ValueError:
        bad = True
    if bad:
        yield Problem(path, f"must be an IP address such as 10.96.0.10 or fd00::10, not {text[:60]!r}")


def _pod_cidr(text: str) -> Iterator[Problem]:
    if not text:
        return
    import ipaddress  # noqa: PLC0415

    versions = []
    for part in text.split(","):
        try:
            network = ipaddress.ip_network(part.strip(), strict=False)
        except ValueError:
            network = None
        if network is None or "/" not in part:
            yield Problem("podCIDR", f"must be a network such as 10.244.1.0/24, not {part[:60]!r}")
            return
        versions.append(network.version)
    if len(versions) > 2 or len(set(versions)) != len(versions):
        yield Problem("podCIDR", f"may have one IPv4 and one IPv6 network, not {text[:60]!r}")


def _endpoint(path: str, endpoint: str) -> Iterator[Problem]:
    if not endpoint or (endpoint == EMBEDDED and path == "containerRuntimeEndpoint"):
        return
    scheme, separator, rest = endpoint.partition("://")
    socket = rest if separator and scheme == "unix" else endpoint
    if not socket.startswith("/") or "\0" in socket:
        problem = f"must be a socket such as unix:///run/containerd/containerd.sock, not {endpoint[:60]!r}"
        yield Problem(path, problem)


def _pod_url(config: KubeletConfiguration) -> Iterator[Problem]:
    if config.static_pod_url:
        from urllib.parse import urlsplit  # noqa: PLC0415

        try:
            url = urlsplit(config.static_pod_url)
            good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            good = False
        if not good:  # not shown, because it may have a password
            yield Problem("staticPodURL", "must be a URL that begins with http:// or https:// and names a host")
    for name, values in (config.static_pod_url_header or {}).items():
        if not _HEADER.fullmatch(name):
            yield Problem("staticPodURLHeader", f"{name[:60]!r} is not the name of an HTTP header")
        if any("\n" in value or "\r" in value or "\0" in value for value in values):
            yield Problem("staticPodURLHeader", f"a value of {name[:60]!r} has a line break in it")
