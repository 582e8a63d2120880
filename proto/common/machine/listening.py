"""Listening TCP sockets with the families and the keepalive of Go's net.Listen.

On either wildcard address, 0.0.0.0 or ::, a socket accepts both IPv4 and IPv6. An IPv4 client of such a socket has an
IPv4-mapped address (RFC 4291, 2.5.5.2); `plain` gives the IPv4 address. https://pkg.go.dev/net#Listen
"""

from __future__ import annotations

import socket

KEEPALIVE_S = 15
"""Seconds of silence until the first probe, and between two. https://pkg.go.dev/net#KeepAliveConfig"""
KEEPALIVE_PROBES = 9
"""Unanswered probes that end a connection, some 150 s after its peer vanished."""
_MAPPED = bytes(10) + b"\xff\xff"


def plain(host: str) -> str:
    """The IPv4 address in an IPv4-mapped one; other texts unchanged."""
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return host
    return socket.inet_ntop(socket.AF_INET, packed[12:]) if packed[:12] == _MAPPED else host


def family_of(address: str) -> socket.AddressFamily:
    """The family of a socket that `listen` opens now on the IP address."""
    return _place(address)[1]


def listen(address: str, port: int, backlog: int) -> socket.socket:
    """A blocking socket that listens on the IP address. Raises OSError."""
    host, family = _place(address)
    listener = socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=host == "::")
    end_lost_connections(listener)
    return listener


def _place(address: str) -> tuple[str, socket.AddressFamily]:
    """Address and family to bind. A wildcard has IPv4 alone in a kernel without IPv6.

    With the sysctl disable_ipv6 the kernel still binds ::, and IPv4 clients reach it.
    """
    host = plain(address)
    if not _is_wildcard(host):
        return host, socket.AF_INET6 if ":" in host else socket.AF_INET
    return ("::", socket.AF_INET6) if socket.has_dualstack_ipv6() else ("0.0.0.0", socket.AF_INET)


def end_lost_connections(listener: socket.socket) -> None:
    """Probe the peers of all connections that it accepts from now on: they inherit these options. Idempotent."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def _is_wildcard(host: str) -> bool:
    try:
        return not any(socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host))
    except OSError:
        return False
