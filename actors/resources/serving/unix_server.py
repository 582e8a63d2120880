"""Serves gRPC on a unix socket, from the descriptors of the .proto files. The server runs while it has clients."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from actors._base.process.rpc_threads import RpcThreads, room_for_thread, start_server
from actors.resources.serving.socket_proxy import SocketProxy, Stop

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds for all clients together."""

    threads: int = 4
    calls: int = 64
    """Calls that wait or run; further ones end with RESOURCE_EXHAUSTED."""
    request_bytes: int = 4 << 20
    connections: int = 64
    """Of clients that are served, each with three file descriptors."""
    streams: int = 100
    """Calls of one connection at a time, also those whose answer the client has not taken. Further ones wait there."""
    idle_s: float = 30.0
    """A connection without a call for so long is closed; clients connect again with the next."""
    keepalive_s: float = 30.0
    """A connection of a client that does not answer a ping of this interval is closed."""
    connection_age_s: float = 600.0
    """A connection is closed after this time; clients connect again. So no answer stays for longer."""

    def options(self) -> list[tuple[str, int]]:
        """Their names in gRPC."""
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.request_bytes),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.max_concurrent_streams", self.streams),
            ("grpc.max_connection_idle_ms", int(self.idle_s * 1000)),
            ("grpc.keepalive_time_ms", int(self.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.keepalive_s * 1000)),
            ("grpc.max_connection_age_ms", int(self.connection_age_s * 1000)),
            ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
        ]


AGE_GRACE_MS = 10_000
"""Calls of a connection that is closed for its age have this time to end."""


class RpcRefusedError(Exception):
    """A call ends with a gRPC status: the code's name as in grpc.StatusCode, and the details."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code


class Service(NamedTuple):
    """A service, and functions of the request by rpc name."""

    descriptor: ServiceDescriptor
    methods: Mapping[str, Callable[[Any], Any]]


def serve(path: str, behind: str, services: Iterable[Service], limits: Limits | None = None) -> SocketProxy:
    """Serve `services` at the socket `path`; their methods run in threads of the server. Blocks.

    `behind`: a path in a private directory, for the server that runs while there are clients. Replaces a socket at
    `path`, and nothing else. Raises OSError when it cannot listen.
    """
    limits = limits or Limits()
    return SocketProxy(path, behind, partial(_start, behind, tuple(services), limits), limits.connections)


def _start(path: str, services: Sequence[Service], limits: Limits) -> Stop:
    """Start a server. gRPC's asyncio server is not used: a path that is no UTF-8 in a request ends it."""
    try:
        with room_for_thread() as release:
            return _start_with(release, path, services, limits)
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"cannot serve {path}: {error}") from error


def _start_with(release: Callable[[], None], path: str, services: Sequence[Service], limits: Limits) -> Stop:
    pool = RpcThreads(limits.threads, "rpc")
    try:
        server = grpc.server(pool, options=limits.options(), maximum_concurrent_rpcs=limits.calls)
        for service, methods in services:
            handlers = {name: _handler(service, name, function) for name, function in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        if server.add_insecure_port(f"unix:{path}") == 0:
            raise RuntimeError("gRPC cannot bind it")
        release()
        start_server(server)
    except RuntimeError:
        pool.shutdown(wait=False)  # each client tries again, and its thread would be missing elsewhere
        raise
    return partial(_stop, server, pool)


def _stop(server: grpc.Server, pool: RpcThreads) -> None:
    server.stop(None)
    pool.shutdown(wait=False)


def _handler(service: ServiceDescriptor, rpc: str, function: Callable[[Any], Any]) -> Any:
    method = service.methods_by_name[rpc]
    accepted = GetMessageClass(method.input_type)

    def call(request: bytes, context: Any) -> Any:
        try:
            return function(_read(accepted, request))
        except RpcRefusedError as error:
            context.abort(grpc.StatusCode[error.code], str(error))
        except Exception as error:
            log.exception("%s failed unexpectedly", rpc)
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    encode = GetMessageClass(method.output_type).SerializeToString
    return grpc.unary_unary_rpc_method_handler(call, response_serializer=encode)


def _read(accepted: type[Message], request: bytes) -> Message:
    """A request. Without this gRPC would log a traceback for each that cannot be read."""
    try:
        return accepted.FromString(request)
    except DecodeError as error:
        raise RpcRefusedError("INTERNAL", f"cannot read the request: {error}") from error
