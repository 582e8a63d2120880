"""An OTLP collector for tests: a gRPC server with TraceService/Export that keeps the spans."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc


class Seen(NamedTuple):
    """A span that arrived."""

    name: str
    actor: str
    trace: str
    identity: str
    parent: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, str]
    resource: dict[str, str]
    error: str


class Collector(service_grpc.TraceServiceServicer):  # type: ignore[misc]
    """`spans` grows while it serves."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.port = 0

    def Export(self, request: Any, _: Any) -> Any:  # noqa: N802 - the rpc's name
        for group in request.resource_spans:
            resource = _attributes(group.resource)
            for scope in group.scope_spans:
                self.spans += [_seen(span, scope.scope.name, resource) for span in scope.spans]
        return service.ExportTraceServiceResponse()

    def trace_of(self, name: str) -> list[Seen]:
        """All spans of the trace whose first span has this name; none before it has arrived."""
        first = next((span for span in list(self.spans) if span.name == name and not span.parent), None)
        return [span for span in list(self.spans) if first is not None and span.trace == first.trace]


def _attributes(holder: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in holder.attributes}


def _seen(span: Any, scope: str, resource: dict[str, str]) -> Seen:
    return Seen(
        span.name,
        scope.removeprefix("nodevisor/"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span),
        resource,
        span.status.message,
    )


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    """A collector on a port of the loopback interface."""
    made = Collector()
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    service_grpc.add_TraceServiceServicer_to_server(made, server)
    made.port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield made
    finally:
        server.stop(None).wait()
