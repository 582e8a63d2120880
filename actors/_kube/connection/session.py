"""Blocking calls of the API server on the connections of one kubeconfig.

Covers TLS, the credentials of each request, deadlines, and new connections after a certificate has changed. `client`
provides the threads.
"""

from __future__ import annotations

import errno
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import urllib3

from actors._base.messaging import tracing
from actors._host.proxies import Proxy, proxy_for
from actors._kube.connection import deadlines
from actors._kube.connection.counters import counted
from actors._kube.connection.credentials import Credentials, Identity, load_certificate
from actors._kube.connection.kubeconfig import Access, KubeconfigError, load
from actors._kube.connection.stream import Endpoint, Stream, open_stream
from actors._kube.errors import ApiError, Unauthorized, Unreachable
from actors._pki.trust import client_context

log = logging.getLogger(__name__)

CONNECT_S = 10.0
"""Time to connect, so that a server whose packets are dropped fails before the call's deadline."""
CHUNK_BYTES = 256 * 1024
MAX_BYTES = 512 * 1024 * 1024
"""Limit of a decompressed answer. The list of all objects that a node may watch is a few MB."""
KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""A watch waits for minutes. These options detect a vanished peer within one."""
USER_AGENT = "kubelet/v1.36 (linux) nodevisor"


class Connections(NamedTuple):
    """The connections of calls and of streams, for one set of certificates."""

    pool: urllib3.HTTPConnectionPool
    endpoint: Endpoint


class Session:
    """The connections of one purpose. Safe from any thread."""

    def __init__(self, access: Access | str, rotated: str = "") -> None:
        """A context, or the path of a kubeconfig, which the first call reads. While the file is missing, as during
        bootstrapping, calls fail with Unreachable. `rotated`: see Credentials."""
        self._rotated = rotated
        self._path = access if isinstance(access, str) else ""
        self._known = None if isinstance(access, str) else Credentials(access, rotated=rotated)
        self._lock = threading.Lock()
        self._used: Connections | None = None
        self._made_for: tuple[Any, ...] = ()

    @property
    def server(self) -> str:
        """The API server's URL; empty before the kubeconfig was read."""
        return self._known.access.cluster.server if self._known is not None else ""

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
        """The body of a successful answer. Blocks for at most `timeout_s`. Raises ApiError.

        Refused credentials are read again once, because they may have been rotated.
        """
        deadline = time.monotonic() + timeout_s
        identity = self._identity(method, path)
        try:
            return self._call_once(method, path, query, body, content_type, deadline, identity)
        except Unauthorized:
            self._credentials().refused(identity)
        identity = self._identity(method, path)
        try:
            return self._call_once(method, path, query, body, content_type, deadline, identity)
        except Unauthorized as error:
            self._credentials().refused(identity)
            why = self._credentials().why_refused(identity)
            raise Unauthorized(error.status, error.reason, f"{error}{why}") from error

    def _call_once(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, deadline: float,
        identity: Identity,
    ) -> bytes:  # fmt: skip
        with counted(method, len(body or b"")) as counting:
            try:
                response = self.open(
                    method, path, query=query, body=body, content_type=kind, deadline=deadline, identity=identity
                )
            finally:
                counting.server = self.server
            try:
                content = read_all(response, deadline)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                response.close()
                raise Unreachable(f"{method} {path}: {error}") from error
            response.release_conn()
            counting.code, counting.received_bytes = str(response.status), len(content)
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
        identity: Identity | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """The answer, also an error, with its body unread. `identity`: None for the present one. Raises Unreachable."""
        left = max(0.01, deadline - time.monotonic())
        with self._unreachable(method, path):
            connected, target, headers = self._prepared(path, query, identity or self._credentials().current())
            if body is not None:
                headers["Content-Type"] = content_type
            return connected.pool.urlopen(
                method,
                target,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, left), read=left, total=left),
                retries=False,
                redirect=False,
                preload_content=False,
            )

    def stream(self, path: str, query: Mapping[str, str], deadline: float) -> Stream:
        """A GET with a streaming answer, on its own connection. Blocks until its head has come. Raises ApiError."""
        left = max(0.01, deadline - time.monotonic())
        identity = self._identity("GET", path)
        try:
            with self._unreachable("GET", path):
                connected, target, headers = self._prepared(path, query, identity)
                connection = connected.endpoint.connect(min(CONNECT_S, left), KEEPALIVE)
                connection.sock.settimeout(max(0.01, deadline - time.monotonic()))
                with counted("GET", 0) as counting:
                    counting.server = self.server
                    stream = open_stream(connection, target, headers)
                    counting.code = "200"
                return stream
        except Unauthorized:
            self._credentials().refused(identity)
            raise

    def _identity(self, method: str, path: str) -> Identity:
        """The identity to present. Raises Unreachable."""
        with self._unreachable(method, path):
            return self._credentials().current()

    def _prepared(
        self, path: str, query: Mapping[str, str] | None, identity: Identity
    ) -> tuple[Connections, str, urllib3.HTTPHeaderDict]:
        """The connections, request target and headers of a request. Raises KubeconfigError."""
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json", "User-Agent": USER_AGENT})
        headers.extend(identity.headers)
        if context := tracing.CURRENT.get():
            headers["traceparent"] = context
        target = urlsplit(self.server).path.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        return self._connected(self._credentials().access, identity), target, headers

    @contextmanager
    def _unreachable(self, method: str, path: str) -> Iterator[None]:
        """Raise Unreachable for errors of the connection and of the kubeconfig."""
        try:
            yield
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            # ValueError: text of the kubeconfig that a library refuses, as a NUL in the server's name
            raise Unreachable(f"{method} {self.server or self._path}{path}: {error}") from error
        except KubeconfigError as error:
            raise Unreachable(str(error)) from error

    def rebuild(self) -> None:
        """Drop the present connections. Calls under way end by their deadlines."""
        with self._lock:
            used, self._used = self._used, None
        if used is not None:
            used.pool.close()

    def _credentials(self) -> Credentials:
        """Raises KubeconfigError."""
        with self._lock:
            if self._known is None:
                self._known = Credentials(load(self._path), rotated=self._rotated)
            return self._known

    def _connected(self, access: Access, identity: Identity) -> Connections:
        wanted = (identity.certificate, identity.key, access.cluster)
        with self._lock:
            if self._used is not None and self._made_for == wanted:
                return self._used
            old, self._used = self._used, connections(access, identity)
            self._made_for = wanted
            made = self._used
            deadlines.bind(made.pool)
        if old is not None:
            old.pool.close()
        return made


def read_all(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The rest of the body. Raises the connection's errors, OSError over MAX_BYTES, TimeoutError at the deadline."""
    parts, size = [], 0
    while part := response.read1(CHUNK_BYTES):  # read() would not return before it has all of them
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise OSError(errno.EMSGSIZE, f"the answer has more than {MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer did not end in time")
    return b"".join(parts)


def connections(access: Access, identity: Identity) -> Connections:
    """A new pool, and an endpoint for streams. Raises KubeconfigError."""
    url = urlsplit(access.cluster.server)
    options: dict[str, Any] = {
        "maxsize": 4,
        "socket_options": list(KEEPALIVE),
    }
    context = tls(access, identity) if url.scheme == "https" else None
    if context is not None:
        options["ssl_context"] = context
        # Not assert_hostname: urllib3 switches the context's own check of the name off for it, and streams share that.
        options["server_hostname"] = access.cluster.tls_server_name or url.hostname
        if access.cluster.insecure_skip_tls_verify:
            options["assert_hostname"] = False
            log.warning("the API server %s is not verified: insecure-skip-tls-verify", access.cluster.server)
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # logged above, once
    proxy = _proxy_of(access)
    endpoint = Endpoint(access.cluster.server, context, access.cluster.tls_server_name, proxy)
    if proxy is not None:
        to_proxy = client_context() if proxy.url.startswith("https:") else None
        manager = urllib3.ProxyManager(proxy.url, proxy_headers=proxy.headers, proxy_ssl_context=to_proxy, **options)
        return Connections(manager.connection_from_host(url.hostname, url.port, url.scheme), endpoint)
    kind = urllib3.HTTPSConnectionPool if context is not None else urllib3.HTTPConnectionPool
    return Connections(kind(url.hostname or "", url.port, **options), endpoint)


def tls(access: Access, identity: Identity) -> ssl.SSLContext:
    """The TLS context: the trusted CA and our certificate. Raises KubeconfigError."""
    cluster = access.cluster
    authority = access.data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    try:
        context = client_context(authority.decode() if authority else None)
        if cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate:
            load_certificate(context, identity.certificate.rstrip() + b"\n" + identity.key)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"cannot use the certificates of {access.path}: {error}") from error
    return context


def _proxy_of(access: Access) -> Proxy | None:
    """The proxy of the kubeconfig, else of the environment. Raises OSError for an unusable one."""
    return Proxy.of(access.cluster.proxy_url) if access.cluster.proxy_url else proxy_for(access.cluster.server)
