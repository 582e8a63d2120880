"""The API server of one set of credentials: new connections, through a proxy if there is one, and idle ones."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import h11

from actors._host.proxies import PORTS, Proxy
from actors._kube.connection.http1 import Connection

CONNECT_S = 10.0
"""Time to connect, so that a server whose packets are dropped fails before the call's deadline."""
MOST_IDLE = 4
KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A watch waits for minutes. These options detect a vanished peer within one."""
_Address = tuple[str, int]


class Endpoint:
    """The server, how to verify it, and the http:// proxy before it. Safe from any thread."""

    def __init__(self, server: str, context: ssl.SSLContext | None, name: str, proxy: Proxy | None) -> None:
        """`context`: None for http. `name`: empty for the URL's host. Raises ValueError for an invalid port."""
        url, before = urlsplit(server), urlsplit(proxy.url if proxy is not None else "")
        host, port = url.hostname or "", url.port or PORTS["http" if context is None else "https"]
        self._server: _Address = (host, port)
        self._host = url.netloc.rpartition("@")[2].removesuffix(":")
        """The header Host: with a port only if the URL has one, as from Go. Some proxies compare the whole."""
        self._proxy = (before.hostname, before.port or PORTS["http"]) if before.hostname else None
        self._proxy_headers = list(proxy.headers.items()) if proxy is not None else []
        self._context, self._name = context, name or host
        self._path = url.path.rstrip("/")
        self._absolute = self._proxy is not None and context is None
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def target(self, path: str) -> str:
        """The request target of a path: absolute for a proxy that sees the requests (RFC 9112, 3.2.2)."""
        return f"http://{self._host}{self._path}{path}" if self._absolute else self._path + path

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers of each request: those for a proxy that sees the requests."""
        return self._proxy_headers if self._absolute else []

    def take(self, deadline: float) -> Connection:
        """An idle connection, or a new one. Raises as `connect` does."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if connection.is_idle():
                return connection
            connection.close()
        return self.connect(deadline)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read, or close it."""
        if connection.next_cycle():
            with self._lock:
                if not self._closed and len(self._idle) < MOST_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close the idle connections, and the others as they come back."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    def connect(self, deadline: float) -> Connection:
        """A new connection, with TLS for https. Raises OSError, h11.ProtocolError, ValueError."""
        latest = min(deadline, time.monotonic() + CONNECT_S)
        sock = self._dial(latest)
        try:
            for level, option, value in KEEPALIVE:
                sock.setsockopt(level, option, value)
            if self._context is not None:
                if self._proxy is not None:
                    self._tunnel(sock, self._proxy, latest)
                sock.settimeout(max(0.01, latest - time.monotonic()))
                sock = self._context.wrap_socket(sock, server_hostname=self._name)
        except BaseException:
            sock.close()
            raise
        return Connection(sock, self._host)

    def _dial(self, deadline: float) -> socket.socket:
        if self._proxy is None:
            return _dialled(self._server, deadline)
        try:
            return _dialled(self._proxy, deadline)
        except OSError as error:
            raise ConnectionError(f"cannot reach the proxy {_shown(self._proxy)}: {error}") from error

    def _tunnel(self, sock: socket.socket, proxy: _Address, deadline: float) -> None:
        """Ask the proxy for a tunnel to the server."""
        target = _shown(self._server)
        asked = Connection(sock, target)
        try:
            asked.request("CONNECT", target, self._proxy_headers, None, deadline)
            status = asked.head(deadline).status_code
        except (OSError, h11.ProtocolError) as error:
            raise ConnectionError(f"the proxy {_shown(proxy)} opened no tunnel to {target}: {error}") from error
        if not 200 <= status < 300:
            raise ConnectionError(f"the proxy {_shown(proxy)} refused a tunnel to {target}: status {status}")


def _dialled(address: _Address, deadline: float) -> socket.socket:
    """A connection to one of the name's addresses. Each has its share of the time, as with Go's net.Dialer.

    So an address that drops packets leaves time for the next one, and for TLS. Looking the name up has only the
    resolver's limits: timeout and attempts of resolv.conf. Raises OSError.
    """
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    problem = OSError(f"{_shown(address)} has no address")
    for number, (family, kind, protocol, _, one) in enumerate(found):
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)  # fails for IPv6 with ipv6.disable=1
            sock.settimeout(max(0.01, (deadline - time.monotonic()) / (len(found) - number)))
            sock.connect(one)
        except OSError as error:
            if sock is not None:
                sock.close()
            problem = error
        else:
            return sock
    raise problem


def _shown(address: _Address) -> str:
    """HOST:PORT, as in a URL."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
