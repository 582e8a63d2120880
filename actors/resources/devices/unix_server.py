"""A gRPC server of one service on a unix socket, from the .proto's descriptor."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

log = logging.getLogger(__name__)

THREADS = 4
MOST_CALLS = 64
"""Calls that wait or run; further ones end with RESOURCE_EXHAUSTED."""
MOST_BYTES = 4 << 20


class RpcRefusedError(Exception):
    """A call ends with a gRPC status: the code's name as in grpc.StatusCode, and the details."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code


class UnixServer:
    """Serves `methods`, functions of the request by rpc name. They run in threads of the server."""

    def __init__(self, socket: str, service: ServiceDescriptor, methods: Mapping[str, Callable[[Any], Any]]) -> None:
        """Replaces a socket at the path, and nothing else. Raises OSError when it cannot listen."""
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(socket).st_mode):
                os.unlink(socket)
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="rpc"),
            options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MOST_BYTES)),
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        handlers = {name: _handler(service, name, function) for name, function in methods.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        try:
            bound = self._server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(0, f"cannot listen on {socket}") from error
        if bound == 0:
            raise OSError(0, f"cannot listen on {socket}")
        os.chmod(socket, 0o600)
        self._server.start()

    def stop(self) -> None:
        """Refuse new calls and cut off those under way."""
        self._server.stop(0)


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
