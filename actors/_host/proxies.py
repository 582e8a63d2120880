"""The HTTP proxies that the environment names, by the rules of Go: golang.org/x/net/http/httpproxy.

The kubelet and containerd have these rules. A node's drop-in for their services works for this agent too.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy without its credentials, which are in `authorization`."""

    url: str
    """http://HOST:PORT or https://HOST:PORT."""
    authorization: str = field(default="", repr=False)
    """Value of the header Proxy-Authorization; empty without a user."""

    @classmethod
    def of(cls, text: str) -> Proxy:
        """Parse [SCHEME://][USER:PASSWORD@]HOST[:PORT]. Raises OSError for another form, or another scheme."""
        parts = _parts(text if "://" in text else f"http://{text}")
        if parts is None or parts.scheme not in PORTS:
            raise OSError(f"cannot use the proxy {_shown(parts)}: use http://HOST:PORT or https://HOST:PORT")
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(f"{parts.scheme}://{host}:{parts.port or PORTS[parts.scheme]}", authorization)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the proxy."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def _shown(parts: SplitResult | None) -> str:
    """The proxy without its password, for messages."""
    return f"{parts.scheme}://{parts.hostname}" if parts is not None else "of the configuration"


def _parts(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # reading it checks it
    except ValueError:
        return None
    return parts if parts.scheme and parts.hostname else None


def proxy_for(url: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy for a URL of http or https; None for a direct connection. Raises OSError for an unusable proxy.

    HTTPS_PROXY is for https, HTTP_PROXY for http, each also in lower case. localhost and loopback addresses have none.
    NO_PROXY lists exceptions: `*`, CIDRs, addresses and domains, the last two with an optional port. DOMAIN includes
    its subdomains; .DOMAIN and *.DOMAIN are the subdomains alone.
    """
    parts = urlsplit(url)
    text = _variable(environment, f"{parts.scheme}_proxy") if parts.scheme in PORTS else ""
    if not text or (parts.scheme == "http" and environment.get("REQUEST_METHOD")):
        return None  # CGI sets HTTP_PROXY from the client's header Proxy
    host, port = (parts.hostname or "").lower(), parts.port or PORTS[parts.scheme]
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return None
    entries = _variable(environment, "no_proxy").lower().split(",")
    if any(_excludes(entry.strip(), host, address, str(port)) for entry in entries):
        return None
    return Proxy.of(text)


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name, "")


def _excludes(entry: str, host: str, address: _Address | None, port: str) -> bool:
    """Return True when an entry of NO_PROXY names the host."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, own_port = _split(entry)
    if not name or own_port not in ("", port):
        return False
    if (named := _address(name)) is not None:
        return named == address
    domain = name[1:] if name.startswith("*.") else name
    return host.endswith(f".{domain.removeprefix('.')}") or host == domain


def _split(entry: str) -> tuple[str, str]:
    """Host and port of HOST, HOST:PORT, IPV6 or [IPV6]:PORT."""
    host, colon, port = entry.rpartition(":")
    if colon and host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if colon and ":" not in host else (entry, "")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if "/" not in text or not text.rpartition("/")[2].isdecimal():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address
