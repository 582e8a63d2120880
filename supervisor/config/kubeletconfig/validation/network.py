"""Rules of addresses, networks, names and endpoints.

The kubelet checks neither clusterDNS, clusterDomain nor podCIDR, so a wrong one is a warning. Text that would break the
lines of a pod's resolv.conf or hosts file is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from proto.node.runtime import EMBEDDED
from supervisor.config.kubeletconfig.problems import MAX_PROBLEMS, Problem
from supervisor.config.kubeletconfig.typed.types import KubeletConfiguration

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
_MAX_LABEL, _MAX_DOMAIN = 63, 253
CLIENT_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "trailer", "accept-encoding", "connection"})
_WORD = re.compile(r"[!-~]*", re.ASCII)
_PRINTABLE = re.compile(r"[ -~]*", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def rules(config: KubeletConfiguration) -> Iterator[Problem]:
    """Violations in addresses and names."""
    yield from _address("address", config.address)
    yield from _address("healthzBindAddress", healthz_ip(config))
    if not _WORD.fullmatch(config.cluster_domain):
        problem = f"must have visible ASCII characters only, not {config.cluster_domain[:60]!r}"
        yield Problem("clusterDomain", problem)
    if not _PRINTABLE.fullmatch(config.pod_cidr):
        yield Problem("podCIDR", f"must have printable ASCII characters only, not {config.pod_cidr[:60]!r}")
    yield from _endpoint("containerRuntimeEndpoint", config.container_runtime_endpoint)
    if not config.container_runtime_endpoint:
        yield Problem("containerRuntimeEndpoint", "must not be empty")
    yield from _endpoint("imageServiceEndpoint", config.image_service_endpoint)
    yield from _pod_url(config)


def warnings(config: KubeletConfiguration) -> Iterator[Problem]:
    """Warnings of a cluster's addresses and names, and of headers that the client sets by itself.

    The kubelet's client leaves most of these headers out silently.
    """
    yield from itertools.islice(_unusable_servers(config), MAX_PROBLEMS)
    if config.cluster_domain and not is_domain(config.cluster_domain):
        problem = f"{config.cluster_domain[:60]!r} is no DNS domain such as cluster.local; pods get it as it is"
        yield Problem("clusterDomain", problem)
    if problem := _pod_cidr(config.pod_cidr):
        yield Problem("podCIDR", f"{problem}; the runtime gets it as it is")
    for name in config.static_pod_url_header or {}:
        if name.lower() in CLIENT_HEADERS:
            yield Problem("staticPodURLHeader", f"{name} is not sent, because the client sets it by itself")


def healthz_ip(config: KubeletConfiguration) -> str:
    """The address of the healthz port. The kubelet does not check healthzBindAddress, and resolves localhost."""
    return "127.0.0.1" if config.healthz_bind_address == "localhost" else config.healthz_bind_address


def is_domain(name: str) -> bool:
    """True for a DNS-1123 subdomain, also with upper case and a final dot, as resolvers accept them."""
    name = name.removesuffix(".")
    return len(name) <= _MAX_DOMAIN and all(
        len(label) <= _MAX_LABEL and _DNS_LABEL.fullmatch(label) for label in name.split(".")
    )


def usable_servers(servers: Iterable[str]) -> tuple[str, ...]:
    """The addresses of clusterDNS in their usual form, without entries that are none, as in the kubelet."""
    return tuple(found for server in servers if (found := _sloppy(server)))


def _unusable_servers(config: KubeletConfiguration) -> Iterator[Problem]:
    for index, server in enumerate(config.cluster_dns or ()):
        if not _sloppy(server):
            problem = f"{server[:60]!r} is no IP address such as 10.96.0.10 or fd00::10; left out"
            yield Problem(f"clusterDNS[{index}]", problem)


def _sloppy(text: str) -> str:
    """An address as Go's ParseIPSloppy reads it: leading zeros do not count. Empty: it is none."""
    import ipaddress  # noqa: PLC0415

    if "%" in text:
        return ""  # a zone
    groups = [".".join(part.lstrip("0") or part[:1] for part in group.split(".")) for group in text.split(":")]
    try:
        found = ipaddress.ip_address(":".join(groups))
    except ValueError:
        return ""
    mapped = found.ipv4_mapped if found.version == 6 else None
    return str(mapped or found)


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


def _pod_cidr(text: str) -> str:
    if not text:
        return ""
    import ipaddress  # noqa: PLC0415

    versions = []
    for part in text.split(","):
        try:
            network = ipaddress.ip_network(part.strip(), strict=False)
        except ValueError:
            network = None
        if network is None or "/" not in part:
            return f"{part[:60]!r} is no network such as 10.244.1.0/24"
        versions.append(network.version)
    if len(versions) > 2 or len(set(versions)) != len(versions):
        return f"{text[:60]!r} is not one IPv4 and one IPv6 network"
    return ""


def _endpoint(path: str, endpoint: str) -> Iterator[Problem]:
    if not endpoint or (endpoint == EMBEDDED and path == "containerRuntimeEndpoint"):
        return
    scheme, separator, rest = endpoint.partition(":")
    socket = rest.removeprefix("//") if separator and scheme == "unix" else endpoint  # one slash is a URL, too
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
