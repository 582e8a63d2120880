"""The server actor: opens the ports, checks each request and calls its handler, in an event loop beside the mailbox.

The only state is a copy of the pods, which status sends again. After a kill the next incarnation takes over the
listening sockets with the clients that wait there.
Connections are lost: clients that followed a log or held an exec ask again, as after a restart of the kubelet.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from actors._base import Actor, handles
from actors._base.messaging import tracing
from actors._base.messaging.futures import Future
from actors._base.process import listener_store
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.client import Cri, CriCalls
from actors._cri.errors import CriError, NotFound
from actors._cri.relay import RelayedCri
from actors._net.loop import Loop
from actors._net.stream import Stream
from actors.server.auth.access import Access
from actors.server.auth.reviews import Reviews
from actors.server.base import counters
from actors.server.base.http import ANONYMOUS, BadRequest, Request, Response, Upgraded, text
from actors.server.context import Context
from actors.server.pods import NotRunning, ObjectNotFound
from actors.server.policy import RouteMatch, Table
from actors.server.streaming.upstream import UpstreamUnavailable
from actors.server.table import page_table, read_only_table, secure_table
from actors.server.transport import certificate
from actors.server.transport.certificate_watch import CertificateWatch
from actors.server.transport.listening import Connections, Listeners, Port
from actors.server.transport.tls import Certificates, TlsFiles
from proto.agent import registry
from proto.agent.actor import Ping, Pong
from proto.agent.settings import Settings
from proto.common.hosts import misdirected
from proto.node.server import RemovePods, SetPod, SetPods
from proto.wire.errors import ActorError, Refused

log = logging.getLogger(__name__)

SIGN_S = 60.0
REVIEW_S = 10.0
"""Deadline of a review. A review is not sent if the throttle would hold it for longer."""


class Server(Actor):
    """Requests are handled in the loop's thread; the mailbox is for the watchdog and the consoles."""

    name = "server"
    asks = registry.NAMES - {name}
    """All actors, for their metrics."""
    blocking_threads = 16

    async def rebuild(self) -> None:
        """Make the loop, the handlers' context and the access check. There is no state to restore."""
        settings = self.settings
        self.loop = Loop()
        self._connections = Connections()
        self._secure = secure_table(settings)
        self._context = Context(
            self.loop,
            settings,
            lambda name, request, timeout_s: self.peer(name).ask(request, timeout_s),
            self.blocking,
            cri=self._runtime(),
            moves=MigrationPrewarm(),
            paths=sorted({route.pattern for route in self._secure.routes}),
        )
        self._access = Access(
            self._reviews() if settings.kubeconfig else None,
            tokens=settings.webhook_authentication,
            anonymous=settings.anonymous_auth,
            webhook=settings.authorization_mode != "AlwaysAllow",
            uids=settings.user_uid_of_certificate,
        )
        self._requests: dict[int, int] = {}
        self._ports: list[Port] = []

    def _runtime(self) -> CriCalls:
        """A client with a gRPC channel of its own, opened with the first stream or log. Relaying would delay execs."""
        settings, seconds = self.settings, self.settings.runtime_request_timeout_s
        if not settings.container_runtime_endpoint:
            return RelayedCri(self.peer("pleg"), request_seconds=seconds)  # pleg answers that no runtime is configured
        return Cri(settings.container_runtime_endpoint, request_seconds=seconds, after=self.after)

    def _reviews(self) -> Reviews:
        settings = self.settings

        def client() -> Any:
            from actors._kube.client import connect_node  # noqa: PLC0415 - 9 MB that a node without webhooks saves

            return connect_node(
                self,
                settings,
                qps=settings.kube_api_qps,
                burst=settings.kube_api_burst,
                threads=4,
                timeout_s=REVIEW_S,
                most_throttled_s=REVIEW_S,
            )

        return Reviews(
            self.loop,
            client,
            settings.node_name,
            settings.token_cache_s,
            settings.authorized_cache_s,
            settings.unauthorized_cache_s,
        )

    def on_ready(self) -> None:
        """Open the ports, or take over the sockets of the incarnation before."""
        places = places_of(self.settings)
        self._listeners = Listeners(listener_store.current(), places.values())
        self.loop.start(lambda error: self.post(self.crash, error))
        if "secure" in places:
            self.spawn(self._serve_secure(*places["secure"]), "secure port")
        for name, table in (("read-only", read_only_table), ("page", page_table)):
            if name in places:
                self._listen(self._open_port(table(), places[name][0]), *places[name])

    def _open_port(self, table: Table, address: str) -> Port:
        """A port without credentials and TLS."""
        names = (self.settings.node_name, os.uname().nodename)

        async def serve(_: Stream, request: Request) -> Response | Upgraded:
            request.user = ANONYMOUS
            if refused := misdirected(request.headers.get("host"), address, names):
                return self._counted(text(421, f"{refused}\n"))
            with counters.counted(request.method, request.path, "readonly"):
                return await self._serve(table, request)

        return Port(self.loop, self._connections, serve, None, self._listeners)

    async def _serve_secure(self, address: str, number: int) -> None:
        """Open the secure port; sign a certificate first where it is to be our own."""
        settings = self.settings
        if certificate.wants_own(settings):
            await self.blocking(SIGN_S, certificate.self_sign, settings)
        self._certificates = Certificates(
            [TlsFiles(*pair, settings.client_ca_file) for pair in certificate.choices(settings)],
            settings.tls_min_version,
            settings.tls_cipher_suites,
            settings.tls_curve_preferences,
            only_valid=settings.server_tls_bootstrap,
        )
        port = Port(self.loop, self._connections, self._serve_checked, self._certificates.current, self._listeners)
        self._listen(port, address, number)
        CertificateWatch(self, self._certificates, number).start()

    def _listen(self, port: Port, address: str, number: int) -> None:
        self._ports.append(port)
        self.loop.call(lambda: self.loop.spawn(port.listen(address, number), f"port {number}"))

    def on_shutdown(self) -> None:
        """Close every connection."""
        self.loop.stop()

    def describe(self) -> dict[str, Any]:
        """Ports, connections, pods of the copy, and numbers of answers by status."""
        return {
            "ports": [number for port in self._ports if (number := port.number)],
            "connections": self._connections.count,
            "pods": len(self._context.pods),
            "idle": len(self._connections.idle),
            "accepted": self._connections.total,
            "answers": {str(status): count for status, count in sorted(self._requests.items())},
        }

    @handles(Ping)
    async def on_ping_with_loop(self, _: Ping) -> Pong:
        """Answer once the loop has run: an actor whose loop hangs is unhealthy though its mailbox answers."""
        answered: Future[None] = Future()
        self.loop.call(lambda: answered.set(None))
        await answered
        return Pong(mailbox=self.mailbox_depth())

    @handles(SetPods)
    def on_set_pods(self, message: SetPods) -> None:
        """Take all pods from status."""
        self._context.pods.replace(message.pods)

    @handles(SetPod)
    def on_set_pod(self, message: SetPod) -> None:
        """Take a changed pod from status."""
        self._context.pods.put(message.pod)

    @handles(RemovePods)
    def on_remove_pods(self, message: RemovePods) -> None:
        """Drop removed pods."""
        self._context.pods.remove(message.uids)

    # In the loop's thread

    async def _serve_checked(self, stream: Stream, request: Request) -> Response | Upgraded:
        with counters.counted(request.method, request.path, "readwrite"):
            return await self._check_and_serve(stream, request)

    async def _check_and_serve(self, stream: Stream, request: Request) -> Response | Upgraded:
        try:
            checked = await self._access.check(request, lambda: stream.certificate(self._certificates.current().verify))
        except Exception as error:
            checked = answer_to(error, "authorization")
        if isinstance(checked, Response):
            return self._counted(checked)
        request.user = checked
        return await self._serve(self._secure, request)

    async def _serve(self, table: Table, request: Request) -> Response | Upgraded:
        if request.redirect:
            return self._counted(Response(301, b"", headers={"Location": request.redirect}))
        match = table.find(request.method, request.path)
        if match.route is None:
            return self._counted(answer_without_route(match))
        request.params = match.params
        name = f"{request.method} {match.route.pattern}"
        with tracing.served(name, request.headers.get("traceparent", ""), {"http.route": match.route.pattern}):
            return self._counted(await self._answer(match.route.handler, request))

    async def _answer(self, handler: Any, request: Request) -> Response | Upgraded:
        """The handler's answer. Its exception becomes an answer too, because it concerns this client alone."""
        try:
            answer: Response | Upgraded = await handler(self._context, request)
        except Exception as error:
            return answer_to(error, f"{request.method} {request.path}")
        return answer

    def _counted(self, answer: Response | Upgraded) -> Response | Upgraded:
        status = answer.status if isinstance(answer, Response) else 101
        self._requests[status] = self._requests.get(status, 0) + 1
        return answer


def places_of(settings: Settings) -> dict[str, tuple[str, int]]:
    """Address and number of each configured port, by its name: secure, read-only, page."""
    found: dict[str, tuple[str, int]] = {}
    has_clients = settings.kubeconfig or settings.client_ca_file or settings.anonymous_auth or settings.read_only_port
    if settings.enable_server and (has_clients or not settings.page_address):  # else no client could authenticate
        found["secure"] = settings.server_address, settings.server_port
    if settings.read_only_port:
        found["read-only"] = settings.server_address, settings.read_only_port
    if settings.page_address:
        address, _, number = settings.page_address.rpartition(":")
        found["page"] = address.strip("[]"), int(number)
    return found


def answer_without_route(match: RouteMatch) -> Response:
    """404 for an unknown path; 405 for a wrong method, with the right ones in Allow."""
    if match.allowed:
        return text(405, "405: Method Not Allowed", Allow=", ".join(match.allowed))
    return text(404, "404: Page Not Found")


def answer_to(error: Exception, what: str) -> Response:
    """The answer for an exception of a handler. It shows no internals: those are logged."""
    match error:
        case BadRequest():
            return text(400, str(error))
        case ObjectNotFound() | NotFound() | NotRunning():
            return text(500 if isinstance(error, NotRunning) else 404, str(error))
        case CriError() | UpstreamUnavailable():
            return _of_the_runtime(error)
        case Refused():
            return text(404 if error.reason == "NotFound" else 500, error.message)
        case ActorError():
            return text(503, f"{error}; try again\n")
        case OSError():
            log.warning("%s: %s", what, error)
        case _:
            log.error("%s failed", what, exc_info=error)
    return text(500, "Internal Server Error\n")


def _of_the_runtime(error: CriError | UpstreamUnavailable) -> Response:
    if isinstance(error, UpstreamUnavailable):
        return text(500, str(error))
    if error.code == "ResourceExhausted":
        # Too many sessions wait for their clients. The runtime drops unclaimed ones within a minute.
        return text(429, error.grpc_text(), **{"Retry-After": "60"})
    return text(500, error.grpc_text())


ACTOR = Server
