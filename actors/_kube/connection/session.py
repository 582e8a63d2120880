"""Blocking calls of the API server on the connections of one kubeconfig.

Covers TLS, the credentials of each request, deadlines, and new connections after a certificate or the server's
authority has changed. `client` provides the threads.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import h11

from actors._base.messaging import tracing
from actors._host.proxies import Proxy, proxy_for
from actors._kube.connection.authority import CertificateAuthority
from actors._kube.connection.counters import counted
from actors._kube.connection.credentials import Credentials, Identity, load_certificate
from actors._kube.connection.endpoint import Endpoint
from actors._kube.connection.http1 import header
from actors._kube.connection.kubeconfig import Access, KubeconfigError, load
from actors._kube.connection.plugin import PluginRun
from actors._kube.connection.stream import Stream, open_stream
from actors._kube.errors import ApiError, Unauthorized, Unreachable
from actors._pki.trust import client_context

log = logging.getLogger(__name__)

LONGEST_ANSWER_BYTES = 512 * 1024 * 1024
"""Limit of an answer. The list of all objects that a node may watch is a few MB."""
HEADERS = (
    ("Accept", "application/json"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", "kubelet/v1.36 (linux) nodevisor"),
)
"""Of each request."""


class Answer(NamedTuple):
    """A whole answer, also an error."""

    status: int
    content: bytes
    retry_after: str | None
    """Value of the header; None without one."""


class Session:
    """The connections of one purpose. Safe from any thread."""

    def __init__(self, access: Access | str, rotated: str = "", *, follow_authority: bool = True) -> None:
        """`access`: a loaded context, or the path of a kubeconfig, which the first call reads. While the file is
        missing, as during bootstrapping, calls fail with Unreachable. `rotated`: see Credentials. `follow_authority`:
        see CertificateAuthority."""
        self._rotated = rotated
        self._path = access if isinstance(access, str) else ""
        self.on_plugin: Callable[[PluginRun], None] = lambda run: None  # noqa: ARG005 - the signature
        """A run of the credential plugin has begun, or ended. Called in the thread that runs it."""
        self.on_credentials: Callable[[bool], None] = lambda has: None  # noqa: ARG005 - the signature
        """A call has the credentials to present (True), or begins to need them. Called in the call's thread."""
        self._loaded = None if isinstance(access, str) else self._new_credentials(access)
        self._lock = threading.Lock()
        self._authority = CertificateAuthority(follow=follow_authority)
        self._endpoint: Endpoint | None = None
        self._made_for: tuple[Any, ...] = ()

    @property
    def server(self) -> str:
        """The API server's URL; empty before the kubeconfig was read."""
        return self._loaded.access.cluster.server if self._loaded is not None else ""

    @property
    def plugin_run(self) -> PluginRun | None:
        """The last run of the credential plugin."""
        return self._loaded.plugin_run if self._loaded is not None else None

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
        """The body of a successful answer. Raises ApiError.

        Blocks for at most `timeout_s` after the credentials are there: a slow credential plugin is not reported as a
        slow server. Refused credentials are read again once, because they may have been rotated.
        """
        latest = time.monotonic() + timeout_s
        identity = self._identity(method, path, latest)
        deadline = time.monotonic() + timeout_s
        try:
            return self._call_once(method, path, query, body, content_type, deadline, identity)
        except Unauthorized:
            self._credentials().refused(identity)
        identity = self._identity(method, path, deadline)
        try:
            return self._call_once(method, path, query, body, content_type, deadline, identity)
        except Unauthorized as error:
            self._credentials().refused(identity)
            why = self._credentials().why_refused(identity)
            raise Unauthorized(error.status, error.reason, f"{error}{why}") from error

    def _call_once(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None,
        content_type: str, deadline: float, identity: Identity,
    ) -> bytes:  # fmt: skip
        with counted(method, len(body or b"")) as counting:
            try:
                answer = self.answer(
                    method,
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    deadline=deadline,
                    identity=identity,
                )
            finally:
                counting.server = self.server
            counting.code, counting.received_bytes = str(answer.status), len(answer.content)
        if answer.status >= 300:
            raise ApiError.of(*answer)
        return answer.content

    def answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline: float,
        identity: Identity | None = None,
    ) -> Answer:
        """One request and its answer. `identity`: None for the present one. Raises Unreachable."""
        with self._unreachable(method, path):
            endpoint, target, headers = self._prepared(path, query, identity or self._credentials().current())
            if body is not None:
                headers.append(("Content-Type", content_type))
            connection = endpoint.take(deadline)
            try:
                connection.request(method, target, headers, body, deadline)
                head = connection.head(deadline)
                content = connection.content(deadline, LONGEST_ANSWER_BYTES)
            except BaseException:
                connection.close()
                raise
            endpoint.give_back(connection)
        return Answer(head.status_code, content, header(head, "Retry-After"))

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Stream:
        """A GET with a streaming answer, on its own connection. Blocks until its head has come, for as long as `call`.

        Raises ApiError.
        """
        identity = self._identity("GET", path, time.monotonic() + timeout_s)
        deadline = time.monotonic() + timeout_s
        with self._unreachable("GET", path), counted("GET", 0) as counting:
            counting.server = self.server
            endpoint, target, headers = self._prepared(path, query, identity)
            try:
                stream = open_stream(endpoint.connect(deadline), target, headers, deadline)
            except ApiError as error:
                counting.code = str(error.status)
                if isinstance(error, Unauthorized):
                    self._credentials().refused(identity)
                raise
            counting.code = "200"
            return stream

    def _identity(self, method: str, path: str, latest: float) -> Identity:
        """The identity to present. Raises Unreachable, also past `latest`: the caller has given the call up."""
        with self._unreachable(method, path):
            self.on_credentials(False)
            identity = self._credentials().current()
            self.on_credentials(True)
            if time.monotonic() > latest:
                raise TimeoutError("it is not sent, because its credentials came too late")
            return identity

    def _prepared(
        self, path: str, query: Mapping[str, str] | None, identity: Identity
    ) -> tuple[Endpoint, str, list[tuple[str, str]]]:
        """The server, request target and headers of a request. Raises KubeconfigError."""
        endpoint = self._endpoint_for(self._credentials().access, identity)
        headers = [*endpoint.headers, *HEADERS, *identity.headers]
        if context := tracing.CURRENT.get():
            headers.append(("traceparent", context))
        return endpoint, endpoint.target(path) + (f"?{urlencode(query)}" if query else ""), headers

    @contextmanager
    def _unreachable(self, method: str, path: str) -> Iterator[None]:
        """Raise Unreachable for errors of the connection and of the kubeconfig."""
        try:
            yield
        except (h11.ProtocolError, OSError, ValueError) as error:
            # ValueError: text of the kubeconfig that a library refuses, as a NUL in the server's name
            raise Unreachable(f"{method} {self.server or self._path}{path}: {error}") from error
        except KubeconfigError as error:
            raise Unreachable(str(error)) from error

    def close_connections(self) -> None:
        """Close the idle connections, and those of calls under way after their answers. Later calls open new ones."""
        with self._lock:
            old, self._endpoint = self._endpoint, None
        if old is not None:
            old.close()

    def _credentials(self) -> Credentials:
        """Raises KubeconfigError."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._new_credentials(load(self._path))
            return self._loaded

    def _new_credentials(self, access: Access) -> Credentials:
        made = Credentials(access, rotated=self._rotated)
        made.on_plugin = self._plugin_runs
        return made

    def _plugin_runs(self, run: PluginRun) -> None:
        self.on_plugin(run)

    def _endpoint_for(self, access: Access, identity: Identity) -> Endpoint:
        with self._lock:
            authority = self._authority.certificates(access)
            wanted = (identity.certificate, identity.key, access.cluster, authority)
            if self._endpoint is not None and self._made_for == wanted:
                return self._endpoint
            old, self._endpoint = self._endpoint, endpoint_of(access, identity, authority)
            self._made_for = wanted
            made = self._endpoint
        if old is not None:
            old.close()
        return made


def endpoint_of(access: Access, identity: Identity, authority: bytes) -> Endpoint:
    """The server without connections yet. Raises KubeconfigError, OSError and ValueError for an unusable one."""
    cluster = access.cluster
    context = tls(access, identity, authority) if urlsplit(cluster.server).scheme == "https" else None
    if context is not None and cluster.insecure_skip_tls_verify:
        log.warning("the API server %s is not verified: insecure-skip-tls-verify", cluster.server)
    return Endpoint(cluster.server, context, cluster.tls_server_name, _proxy_of(access))


def tls(access: Access, identity: Identity, authority: bytes) -> ssl.SSLContext:
    """The TLS context: the trusted CA (PEM; empty for those of the system) and our certificate.

    Raises KubeconfigError.
    """
    try:
        context = client_context(authority.decode() if authority else None)
        if access.cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if identity.certificate:
            load_certificate(context, identity.certificate.rstrip() + b"\n" + identity.key)
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(f"cannot use the certificates of {access.path}: {error}") from error
    return context


def _proxy_of(access: Access) -> Proxy | None:
    """The proxy of the kubeconfig, else of the environment. Raises OSError for an unusable one."""
    proxy = Proxy.of(access.cluster.proxy_url) if access.cluster.proxy_url else proxy_for(access.cluster.server)
    if proxy is not None and proxy.url.startswith("https:"):
        raise OSError(f"cannot use the proxy {proxy.url}: the agent goes through http:// proxies only; name one")
    return proxy
