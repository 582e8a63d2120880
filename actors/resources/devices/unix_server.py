"""A gRPC server on a unix socket, from the descriptors of the .proto files."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds for all clients together."""

    threads: int = 4
    calls: int = 64
    """Calls that wait or run; further ones end with RESOURCE_EXHAUSTED."""
    request_bytes: int = 4 << 20
    connections: int = 256
    streams: int = 100
    """Calls of one connection at a time, also those whose answer the client has not taken. Further ones wait there."""
    keepalive_s: float = 0.0
    """A connection of a client that does not answer a ping of this interval is closed. 0: no pings."""
    connection_age_s: float = 0.0
    """A connection is closed after this time; clients connect again. 0: never. So no answer stays for longer."""

    def options(self) -> list[tuple[str, int]]:
        """Their names in gRPC."""
        found = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.request_bytes),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.max_concurrent_streams", self.streams),
        ]
        if self.keepalive_s:
            found += [
                ("grpc.keepalive_time_ms", int(self.keepalive_s * 1000)),
                ("grpc.keepalive_timeout_ms", int(self.keepalive_s * 1000)),
            ]
        if self.connection_age_s:
            found += [
                ("grpc.max_connection_age_ms", int(self.connection_age_s * 1000)),
                ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
            ]
        return found


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


class UnixServer:
    """Serves `services`. Their methods run in threads of the server."""

    def __init__(self, socket: str, services: Iterable[Service], limits: Limits | None = None) -> None:
        """Replaces a socket at the path, and nothing else. Raises OSError when it cannot listen."""
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(socket).st_mode):
                os.unlink(socket)
        limits = limits or Limits()
        self._server = grpc.server(
            ThreadPoolExecutor(limits.threads, thread_name_prefix="rpc"),
            options=limits.options(),
            maximum_concurrent_rpcs=limits.calls,
        )
        for service, methods in services:
            handlers = {name: _handler(service, name, function) for name, function in methods.items()}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            self._server.add_generic_rpc_handlers((generic,))
        try:
            bound = self._server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(0, f"cannot listen on {socket}") from error
        if bound == 0:
            raise OSError(0, f"cannot listen on {socket}")
        _close_to_others(socket)
        self._server.start()

    def stop(self) -> None:
        """Refuse new calls and cut off those under way."""
        self._server.stop(0)


def _close_to_others(path: str) -> None:
    """Give the socket mode 0600. Containers with the directory may put a link in its place: it is not followed."""
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
        os.chmod(f"/proc/self/fd/{found}", 0o600)
    finally:
        os.close(found)


def _handler(service: ServiceDescriptor, rpc: str, function: Callable[[Any], Any]) -> Any:
    def call(request: Any, context: Any) -> Any:
        try:
            return function(request)
        except RpcRefusedError as error:
            context.abort(grpc.StatusCode[error.code], str(error))
        except Exception as error:
            log.exception("%s failed unexpectedly", rpc)
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    method = service.methods_by_name[rpc]
    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
