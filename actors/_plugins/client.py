"""The gRPC client of a plugin's socket, from the descriptors of the .proto files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc._cython import cygrpc

from actors._cri.call import Call
from actors._cri.channel import OPTIONS

MOST_BYTES = 4 << 20
"""gRPC's usual limit of a message, which the kubelet has too."""
_LIMIT = "grpc.max_receive_message_length"
_OPTIONS = (*((name, value) for name, value in OPTIONS if name != _LIMIT), (_LIMIT, MOST_BYTES))


class Client:
    """A connection to one socket, opened at the first call. Safe from any thread."""

    def __init__(self, socket: str) -> None:
        self._channel: Any = grpc.insecure_channel(f"unix://{socket}", options=_OPTIONS)

    def call(
        self, service: ServiceDescriptor, rpc: str, request: Any, timeout_s: float, *, wait_for_ready: bool = False
    ) -> Call[Any]:
        """Begin a unary call. `wait_for_ready`: also wait until the plugin listens."""
        begin = unary(self._channel, service, rpc)
        return Call(
            rpc,
            lambda: begin.future(request, timeout=timeout_s, wait_for_ready=wait_for_ready),
            lambda answer: answer,
        )

    def stream(self, service: ServiceDescriptor, rpc: str, request: Any) -> Iterator[Any]:
        """Begin a call with a stream of answers. gRPC delivers it only to a thread that waits for it.

        Raises ValueError after `close`; the iterator raises grpc.RpcError and grpc.FutureCancelledError.
        """
        method = service.methods_by_name[rpc]
        answers: Iterator[Any] = self._channel.unary_stream(
            f"/{service.full_name}/{rpc}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )(request)
        return answers

    def is_connected(self) -> bool:
        """True while the connection is up. Otherwise begin to connect, and wait for nothing."""
        # The public `subscribe` has two threads that wake a hundred times a second, and does not connect again.
        try:
            state = self._channel._channel.check_connectivity_state(True)
        except ValueError:  # it is closed
            return False
        return bool(state == cygrpc.ConnectivityState.ready)

    def close(self) -> None:
        """End all calls and streams."""
        self._channel.close()


def unary(channel: Any, service: ServiceDescriptor, rpc: str) -> Any:
    """The callable of a unary rpc on a gRPC channel."""
    method = service.methods_by_name[rpc]
    return channel.unary_unary(
        f"/{service.full_name}/{rpc}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
