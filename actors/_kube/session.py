"""One kubeconfig's connections: a blocking call in, an answer or an ApiError out.

Covers TLS, credentials per request, deadlines, and closing everything when a certificate has changed or somebody says
so. Which thread blocks is `client`'s and `watch`'s.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from actors._kube.credentials import Credentials, Identity
from actors._kube.errors import ApiError, Unauthorized, Unreachable
from actors._kube.kubeconfig import Access, KubeconfigError

log = logging.getLogger(__name__)

CONNECT_S = 10.0
"""A server whose packets vanish is found out after this long, whatever the call's own deadline."""
CHUNK_BYTES = 256 * 1024
KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A watch waits for minutes: a peer that is gone without a word is found out within one."""
USER_AGENT = "kubelet/v1.36 (linux) nodevisor"


class Session:
    """Connections of one purpose. Safe from any thread."""

    def __init__(self, access: Access) -> None:
        self._credentials = Credentials(access)
        self._lock = threading.Lock()
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._made_for: tuple[Any, ...] = ()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float,
    ) -> bytes:
        """The body of a good answer. Blocks for `timeout_s` at most. Raises ApiError.

        Credentials that are refused are asked for anew once, as they may just have been rotated.
        """
        deadline = time.monotonic() + timeout_s
        try:
            return self._call_once(method, path, query, body, content_type, deadline)
        except Unauthorized:
            self._credentials.refused()
        return self._call_once(method, path, query, body, content_type, deadline)

    def _call_once(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, deadline: float
    ) -> bytes:
        response = self.open(method, path, query=query, body=body, content_type=kind, deadline=deadline)
        try:
            content = read_all(response, deadline)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise Unreachable(f"{method} {path}: {error}") from error
        response.release_conn()
        if response.status >= 300:
            raise ApiError.of(response.status, content, response.headers.get("Retry-After"))
        return content

    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline: float,
    ) -> urllib3.BaseHTTPResponse:
        """The answer, good or bad, with its body still to be read. Raises Unreachable."""
        left = max(0.01, deadline - time.monotonic())
        try:
            identity = self._credentials.current()
            headers = {"Accept": "application/json", "User-Agent": USER_AGENT, **identity.headers}
            if body is not None:
                headers["Content-Type"] = content_type
            pool = self._pool_for(identity)
            return pool.urlopen(
                method,
                self._prefix + path + (f"?{urlencode(query)}" if query else ""),
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, left), read=left),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{method} {self._credentials.access.cluster.server}{path}: {error}") from error
        except KubeconfigError as error:
            raise Unreachable(str(error)) from error

    def rebuild(self) -> None:
        """Use none of the present connections any more; calls under way end by their deadlines."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @property
    def _prefix(self) -> str:
        return urlsplit(self._credentials.access.cluster.server).path.rstrip("/")

    def _pool_for(self, identity: Identity) -> urllib3.HTTPConnectionPool:
        access = self._credentials.access
        wanted = (identity.certificate, identity.key, access.cluster)
        with self._lock:
            if self._pool is not None and self._made_for == wanted:
                return self._pool
            old, self._pool = self._pool, connections(access, identity)
            self._made_for = wanted
            made = self._pool
        if old is not None:
            old.close()
        return made


def read_all(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The rest of the body. Raises what the connection raises, and TimeoutError past the deadline."""
    parts = []
    while part := response.read(CHUNK_BYTES):
        parts.append(part)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer did not end in time")
    return b"".join(parts)


def connections(access: Access, identity: Identity) -> urllib3.HTTPConnectionPool:
    """A new pool. Raises KubeconfigError."""
    url = urlsplit(access.cluster.server)
    options: dict[str, Any] = {
        "maxsize": 4,
        "socket_options": list(KEEPALIVE),
    }
    if url.scheme == "https":
        options["ssl_context"] = tls(access, identity)
        options["server_hostname"] = access.cluster.tls_server_name or url.hostname
        if access.cluster.tls_server_name:
            options["assert_hostname"] = access.cluster.tls_server_name
        if access.cluster.insecure_skip_tls_verify:
            options["assert_hostname"] = False
            log.warning("the API server %s is not verified: insecure-skip-tls-verify", access.cluster.server)
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # said once, above
    proxy = access.cluster.proxy_url or _proxy_of_environment(url.scheme, url.hostname or "")
    if proxy:
        manager = urllib3.ProxyManager(proxy, **options)
        return manager.connection_from_host(url.hostname, url.port, url.scheme)
    kind = urllib3.HTTPSConnectionPool if url.scheme == "https" else urllib3.HTTPConnectionPool
    return kind(url.hostname or "", url.port, **options)


def tls(access: Access, identity: Identity) -> ssl.SSLContext:
    """What to trust and what to present. Raises KubeconfigError."""
    cluster = access.cluster
    authority = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate:
            _present(context, identity)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"cannot use the certificates of {access.path}: {error}") from error
    return context


def _present(context: ssl.SSLContext, identity: Identity) -> None:
    """Through a file in memory: the ssl module takes certificates from files only, and a key is for no disk."""
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, identity.certificate.rstrip() + b"\n" + identity.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _proxy_of_environment(scheme: str, host: str) -> str:
    """HTTPS_PROXY and the like, unless NO_PROXY names the host."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    import urllib.request  # noqa: PLC0415 - seldom needed

    bypass: bool = urllib.request.proxy_bypass(host)
    return "" if bypass else urllib.request.getproxies().get(scheme, "")
