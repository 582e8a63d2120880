"""A gRPC server on a unix socket, for plugins of the tests. Its calls can be replaced by failures and lies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


@dataclass
class Fault:
    """Replaces a call's result: gRPC `code` with `details`, `hang` until the plugin is closed, or another `answer`."""

    code: str = ""
    hang: bool = False
    answer: Any = None
    details: str = ""


@dataclass(kw_only=True)
class Served:
    """Each rpc NAME is the method `_NAME` of the subclass."""

    faults: dict[str, Fault] = field(default_factory=dict)
    """By rpc; taken when the call comes."""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    _servers: list[tuple[Any, Path]] = field(default_factory=list)

    def listen(self, path: Path, *services: ServiceDescriptor) -> None:
        """Serve the services on the socket, which replaces another one there."""
        self.release.clear()
        server = grpc.server(ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
        for service in services:
            handlers = {method.name: self._handler(method) for method in service.methods}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        path.unlink(missing_ok=True)
        assert server.add_insecure_port(f"unix://{path}")
        server.start()
        self._servers.append((server, path))

    def close(self) -> None:
        self.release.set()
        for server, path in self._servers:
            server.stop(0).wait()
            path.unlink(missing_ok=True)
        self._servers.clear()

    def of(self, rpc: str) -> list[Any]:
        """The requests of one rpc so far."""
        return [request for name, request in list(self.calls) if name == rpc]

    def _handler(self, method: Any) -> Any:
        work = getattr(self, f"_{method.name}")
        codec = {
            "request_deserializer": GetMessageClass(method.input_type).FromString,
            "response_serializer": GetMessageClass(method.output_type).SerializeToString,
        }
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streamed(method.name, work), **codec)
        return grpc.unary_unary_rpc_method_handler(self._answered(method.name, work), **codec)

    def _begin(self, rpc: str, request: Any, context: Any) -> Fault:
        fault = self.faults.get(rpc, Fault())
        self.calls.append((rpc, request))  # last: who sees the call may change the faults
        if fault.hang:
            self.release.wait(60)
        if fault.code:
            context.abort(grpc.StatusCode[fault.code], fault.details or f"{rpc} was told to fail")
        return fault

    def _answered(self, rpc: str, work: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def handle(request: Any, context: Any) -> Any:
            fault = self._begin(rpc, request, context)
            return work(request) if fault.answer is None else fault.answer

        return handle

    def _streamed(self, rpc: str, work: Callable[[Any], Iterator[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
        def handle(request: Any, context: Any) -> Iterator[Any]:
            fault = self._begin(rpc, request, context)
            if fault.answer is not None:
                yield fault.answer
            yield from work(request)

        return handle
