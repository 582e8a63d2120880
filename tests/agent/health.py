"""A gRPC health server on loopback (grpc.health.v1), for the pod whose probe is a gRPC one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

SERVING = b"\x08\x01"
"""HealthCheckResponse{status: SERVING}: field 1, varint 1."""


def _serving(request: bytes, context: grpc.ServicerContext) -> bytes:
    return SERVING


@contextmanager
def health_server() -> Iterator[int]:
    """The port it listens on."""
    server = grpc.server(ThreadPoolExecutor(2))
    check = grpc.unary_unary_rpc_method_handler(_serving)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(0).wait()
