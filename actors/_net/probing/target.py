"""Computes a probe's host, port and URL from the Probe, the pod's address and the container's ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from actors._net.probing.outcome import MAX_BODY_BYTES
from proto.v1 import ContainerPort, HTTPGetAction

_URL_CHARACTERS = "/%?&=;:@!$'()*+,~[]#"
"""Characters of a manifest's path that are not escaped, because it may have a query and its own escapes."""
_UNPARSED_CHARACTERS = "/:@&=+$,;~"
"""Characters that Go leaves in a path which it escapes as a whole."""
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"(?::([0-9]{0,9}))?")
_COLON_FIRST = re.compile(r"[^/?]*:")
"""A colon in a relative URL's first segment, where Go looks for a scheme."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SCHEME_AND_HOST = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://|//(?!/))(?:\[[0-9A-Fa-f:.]+\]|[\w.-]*)(?::[0-9]*)?(?=/|\Z)"
)
"""The scheme and host with which a manifest's path may begin. The kubelet replaces them by its own."""
DEFAULT_PORTS = {"http": 80, "https": 443}
MOST_PORT = 65535


class BadTarget(ValueError):
    """The probe names a port or scheme that does not exist. This says nothing about the container."""


class BadLocation(ValueError):
    """A Location that is not a URL."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"parse {quoted(url)}: {problem}")


class Url(NamedTuple):
    """An absolute URL: http or https, or of any scheme when an answer redirects to it."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    path: str
    """The target of the request line: path and query."""
    authority: str
    """host:port as it is written in a URL and in a Host header."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def quoted(text: str) -> str:
    """The text as Go's %q has it, without characters that HTTP forbids in headers. At most MAX_BODY_BYTES of it."""
    text = text[:MAX_BODY_BYTES].replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def is_address(host: str) -> bool:
    """True when `host` needs no name lookup."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def joined(host: str, port: int) -> str:
    """host:port, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve_port(port: int | str, ports: Sequence[ContainerPort]) -> int:
    """A port by number, by the name of a container's port, or by a number in quotes. Raises BadTarget."""
    if isinstance(port, str):
        named = [known.container_port for known in ports if known.name == port]
        try:
            port = named[0] if named else int(port)
        except ValueError:
            raise BadTarget(f"the container has no port named {port!r}") from None
    if not 0 < port <= MOST_PORT:
        raise BadTarget(f"invalid port number: {port}")
    return port


def url_of(action: HTTPGetAction, pod_ip: str, ports: Sequence[ContainerPort]) -> Url:
    """The URL of an HTTP probe. Raises BadTarget."""
    scheme = (action.scheme or "http").lower()
    if scheme not in DEFAULT_PORTS:
        raise BadTarget(f'unsupported protocol scheme "{scheme}"')
    host = action.host or pod_ip
    if not host:
        raise BadTarget("the pod has no address yet")
    port = resolve_port(action.port, ports)
    return Url(scheme, host, port, _request_target(action.path or "/"), joined(host, port))


def _request_target(text: str) -> str:
    """The path and query of a manifest's path, as the kubelet requests them."""
    reference, _, fragment = text.partition("#")
    path, mark, query = reference.partition("?")
    if _BAD_ESCAPE.search(path) or _BAD_ESCAPE.search(fragment):  # not a URL: all of it is the path
        target = quote(text, safe=_UNPARSED_CHARACTERS)
    else:
        given = _SCHEME_AND_HOST.match(path)
        target = quote(path[given.end() if given else 0 :] + mark + query, safe=_URL_CHARACTERS)
    return target if target.startswith("/") else f"/{target}"


def has_scheme(location: str) -> bool:
    """True when a Location is an absolute URL. `//host/path` is not, as in Go."""
    return bool(_SCHEME.match(location))


def fragment_of(location: str) -> str:
    """The fragment of a Location with its `#`, which is shown and not sent; empty without one."""
    _, mark, fragment = location.partition("#")
    return mark + quote(fragment, safe=_URL_CHARACTERS) if fragment else ""


def redirected(url: Url, location: str) -> Url:
    """The URL of a redirect, of any scheme and maybe without a host. Raises BadLocation with Go's text."""
    reference, _, fragment = location.partition("#")
    is_absolute = has_scheme(reference)
    if not is_absolute and _COLON_FIRST.match(reference):
        problem = "first path segment in URL cannot contain colon"
        raise BadLocation(reference, "missing protocol scheme" if reference.startswith(":") else problem)
    try:
        parts = urlsplit(reference if is_absolute else urljoin(str(url), reference))
    except ValueError:
        raise BadLocation(reference, "missing ']' in host") from None
    if parts.path.startswith("/"):
        _check_escapes(reference, parts.path)
    path = quote(parts.path or "/", safe=_URL_CHARACTERS) + (
        f"?{quote(parts.query, safe=_URL_CHARACTERS)}" if parts.query else ""
    )
    peer = parts.netloc.rpartition("@")[2]
    bracketed, bracket, rest = peer.rpartition("]")
    host = bracketed.removeprefix("[") if bracket else peer.partition(":")[0]  # as written
    port = _PORT.fullmatch(rest if bracket else peer[len(host) :])
    if port is None:
        raise BadLocation(reference, f"invalid port {quoted(rest if bracket else peer[len(host) :])} after host")
    _check_escapes(location, fragment)
    return Url(parts.scheme, host, int(port[1] or DEFAULT_PORTS.get(parts.scheme, 0)), path, peer)


def _check_escapes(url: str, part: str) -> None:
    if bad := _BAD_ESCAPE.search(part):
        raise BadLocation(url, f"invalid URL escape {quoted(part[bad.start() :][:3])}")
