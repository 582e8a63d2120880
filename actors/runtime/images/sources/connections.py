"""HTTP connections to a registry: TLS settings, proxies, and a time limit on a response's head.

The read timeout of urllib3 restarts with every byte: a registry that sends single bytes would block a pull's thread.
Readers limit the time of bodies (client.py).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import urllib.parse
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from actors._host.proxies import Proxy, proxy_for
from actors._pki.trust import client_context
from actors.runtime.images.sources.hosts import Host, is_loopback

HEAD_S = 60.0
"""From the request to the end of the response's head."""


class _Bounded(HTTPConnection):
    def getresponse(self) -> Any:
        late = threading.Event()
        timer = threading.Timer(HEAD_S, self._give_up, [late])
        timer.daemon = True
        timer.start()
        try:
            answer = super().getresponse()
        finally:
            timer.cancel()
        if late.is_set():  # http.client takes a truncated head for a whole one
            raise TimeoutError(f"no complete response head within {HEAD_S:g} s")
        return answer

    def _give_up(self, late: threading.Event) -> None:
        late.set()
        sock: Any = self.sock
        with contextlib.suppress(OSError, AttributeError):
            sock.shutdown(socket.SHUT_RDWR)  # the reading thread gets the end of file


class _BoundedTls(_Bounded, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Bounded


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _BoundedTls


class Pools:
    """Connections to `host`, and to others that it names. Each URL may have a proxy of its own."""

    def __init__(self, host: Host) -> None:
        """Opens no connection. Raises OSError for unreadable certificates."""
        self._context = _context(host)
        self._pools: dict[Proxy | None, Any] = {}

    def request(self, method: str, url: str, **more: Any) -> Any:
        """As that of urllib3's PoolManager. Raises OSError for an unusable proxy."""
        proxy = None if is_loopback(urllib.parse.urlsplit(url).netloc) else proxy_for(url)
        if proxy not in self._pools:
            self._pools[proxy] = self._made(proxy)
        return self._pools[proxy].request(method, url, **more)

    def _made(self, proxy: Proxy | None) -> Any:
        if proxy is None:
            pool: Any = urllib3.PoolManager(ssl_context=self._context)
        else:
            to_proxy = client_context() if proxy.url.startswith("https:") else None
            pool = urllib3.ProxyManager(
                proxy.url, proxy_headers=proxy.headers, proxy_ssl_context=to_proxy, ssl_context=self._context
            )
        pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return pool


def _context(host: Host) -> ssl.SSLContext:
    context = client_context()
    if host.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    for path in host.ca:
        context.load_verify_locations(cafile=path)
    if host.client[0]:
        context.load_cert_chain(host.client[0], host.client[1] or None)
    return context
