"""A CRI server before the runtime's: it passes each call on, and answers chosen rpcs with an error of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

THREADS = 32


class Refusing(grpc.GenericRpcHandler):
    """`refused`: names of rpcs that fail with code INTERNAL, whose text is the name in lower case."""

    def __init__(self, target: str) -> None:
        self.refused: set[str] = set()
        self._directory = tempfile.mkdtemp(prefix="nvr-", dir="/tmp")
        self.endpoint = f"unix://{self._directory}/s"
        self._channel = grpc.insecure_channel(target)
        self._server = grpc.server(ThreadPoolExecutor(THREADS))
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(self.endpoint)

    def __enter__(self) -> Refusing:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()
        self._channel.close()
        shutil.rmtree(self._directory)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """gRPC's method: the handler of one call."""
        if details.method.endswith("/GetContainerEvents"):
            return None  # Unimplemented, as in old runtimes
        return grpc.unary_unary_rpc_method_handler(self._pass(details.method))

    def _pass(self, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            name = method.rpartition("/")[2]
            if name in self.refused:
                context.abort(grpc.StatusCode.INTERNAL, name.lower())
            try:
                return bytes(self._channel.unary_unary(method)(request, timeout=context.time_remaining()))
            except grpc.RpcError as failed:
                context.abort(failed.code(), failed.details())
                raise

        return handle
