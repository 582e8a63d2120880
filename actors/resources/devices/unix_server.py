"""A gRPC server on a unix socket, from the descriptors of the .proto files.

It is gRPC's asyncio server: a loop that sleeps until a call comes. The other server of gRPC looks for calls eight
times a second, which is a tenth of what the idle agent costs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOP_S = 10.0
"""The server starts and stops within this time."""


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
    """Serves `services`. Their methods run in a pool of threads; a loop in one more thread takes the calls."""

    def __init__(self, socket: str, services: Iterable[Service], limits: Limits | None = None) -> None:
        """Replaces a socket at the path, and nothing else. Blocks. Raises OSError when it cannot listen."""
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(socket).st_mode):
                os.unlink(socket)
        self._limits = limits or Limits()
        self._pool = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="rpc")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="rpc loop", daemon=True).start()
        try:
            self._server = self._in_loop(self._serve(socket, list(services)))
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Refuse new calls and cut off those under way. Blocks."""
        try:
            self._in_loop(self._server.stop(None))
        finally:
            self._end()

    def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LOOP_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)

    # In the loop

    async def _serve(self, socket: str, services: list[Service]) -> Any:
        server = grpc.aio.server(options=self._limits.options(), maximum_concurrent_rpcs=self._limits.calls)
        for service, methods in services:
            handlers = {name: self._handler(service, name, function) for name, function in methods.items()}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            server.add_generic_rpc_handlers((generic,))
        try:
            bound = server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(0, f"cannot listen on {socket}") from error
        if bound == 0:
            raise OSError(0, f"cannot listen on {socket}")
        _close_to_others(socket)
        await server.start()
        return server

    def _handler(self, service: ServiceDescriptor, rpc: str, function: Callable[[Any], Any]) -> Any:
        method = service.methods_by_name[rpc]
        accepted = GetMessageClass(method.input_type)

        async def call(request: bytes, context: Any) -> Any:
            try:
                return await self._loop.run_in_executor(self._pool, lambda: function(_read(accepted, request)))
            except RpcRefusedError as error:
                await context.abort(grpc.StatusCode[error.code], str(error))
            except Exception as error:
                log.exception("%s failed unexpectedly", rpc)
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        encode = GetMessageClass(method.output_type).SerializeToString
        return grpc.unary_unary_rpc_method_handler(call, response_serializer=encode)


def _read(accepted: type[Message], request: bytes) -> Message:
    """A request. Without this gRPC would log a traceback for each that cannot be read."""
    try:
        return accepted.FromString(request)
    except DecodeError as error:
        raise RpcRefusedError("INTERNAL", f"cannot read the request: {error}") from error


def _close_to_others(path: str) -> None:
    """Give the socket mode 0600. Containers with the directory may put a link in its place: it is not followed."""
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(found).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), path)
        os.chmod(f"/proc/self/fd/{found}", 0o600)
    finally:
        os.close(found)
