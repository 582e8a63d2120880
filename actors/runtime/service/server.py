"""The gRPC server: serves CRI's two services on a unix socket, from the .proto's descriptors.

Each call has a thread, not the mailbox: StopContainer waits for grace periods, some hundred at once. A waiting thread
takes 35 KiB; a pool grows to the largest number of simultaneous calls. Calls that may wait have a pool of their own. So
the kubelet's looks at the runtime are answered however many calls wait, and the node stays ready.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from actors._base.process.rpc_threads import RpcThreads, start_server
from actors._cri.channel import OPTIONS
from actors.runtime.model.errors import RpcError
from proto.cri import api_pb2 as pb

CANCELLABLE = frozenset({"PullImage", "StopContainer", "ExecSync"})
"""Methods with a second argument: a function that registers a callback for the end of the call."""
WAITING = CANCELLABLE | {
    *("RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources"),
    *("CreateContainer", "StartContainer", "RemoveContainer", "UpdateContainerResources", "ReopenContainerLog"),
    *("ImageStatus", "ListImages", "StreamImages", "RemoveImage"),
    "GetContainerEvents",
}
"""Methods that may wait for a container, a registry, an import of images, a plugin, the OCI runtime or an event.

The others only look.
"""
MOST_WAITING = 1000
"""Simultaneous calls of WAITING: a stop of each container on a full node, and others. Further ones are queued."""
MOST_LOOKING = 50
"""Simultaneous calls of the other methods, which take milliseconds."""
MOST_ERROR_BYTES = 2048
"""Of an error's text, in UTF-8. gRPC encodes it to up to three times that, and clients drop answers above 8 KiB."""
_CUT = " [...] "
log = logging.getLogger(__name__)


class Server:
    """Serves `services`, by name in the .proto."""

    def __init__(self, socket: str, services: dict[str, Any]) -> None:
        """Raises OSError when it cannot listen on the socket, and RuntimeError when there is no thread for it."""
        looking, waiting = RpcThreads(MOST_LOOKING, "rpc"), RpcThreads(MOST_WAITING, "waiting rpc")
        self._server = grpc.server(looking, options=OPTIONS)
        for name, servicer in services.items():
            self._server.add_generic_rpc_handlers((_handlers(name, servicer, waiting),))
        Path(socket).unlink(missing_ok=True)
        if self._server.add_insecure_port(f"unix:{socket}") == 0:
            raise OSError(0, f"cannot listen on {socket}")
        os.chmod(socket, 0o600)

    def start(self) -> None:
        """Start answering calls."""
        start_server(self._server)

    def stop(self) -> None:
        """Refuse new calls and cut off those under way."""
        self._server.stop(0)


def _handlers(service: str, servicer: Any, waiting: RpcThreads) -> Any:
    described = pb.DESCRIPTOR.services_by_name[service]
    handlers = {}
    for method in described.methods:
        function = getattr(servicer, method.name, None)
        codec = {
            "request_deserializer": GetMessageClass(method.input_type).FromString,
            "response_serializer": GetMessageClass(method.output_type).SerializeToString,
        }
        call: Any
        if function is None:
            call = _missing(f"unknown method {method.name} for service {described.full_name}")
        else:
            call = _streaming(function) if method.server_streaming else _unary(method.name, function)
        if method.name in WAITING:
            call.experimental_thread_pool = waiting  # gRPC's own name, read in grpc/_server.py
        if method.server_streaming:
            handlers[method.name] = grpc.unary_stream_rpc_method_handler(call, **codec)
        else:
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(call, **codec)
    return grpc.method_handlers_generic_handler(described.full_name, handlers)


def _missing(why: str) -> Callable[[Any, Any], Any]:
    """Refuses a method in the words of grpc-go, which clients look for. gRPC's own words lack the method's name."""
    return lambda _, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, why)


def _unary(rpc: str, function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def call(request: Any, context: Any) -> Any:
        try:
            return function(request, context.add_callback) if rpc in CANCELLABLE else function(request)
        except RpcError as error:
            context.abort(getattr(grpc.StatusCode, error.code), shortened(str(error)))
        except Exception as error:
            log.exception("%s failed unexpectedly", rpc)
            context.abort(grpc.StatusCode.INTERNAL, shortened(f"{type(error).__name__}: {error}"))

    return call


def _streaming(function: Callable[..., Iterator[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
    """A streaming method gets the second argument of CANCELLABLE, too."""

    def call(request: Any, context: Any) -> Iterator[Any]:
        try:
            yield from function(request, context.add_callback)
        except RpcError as error:
            context.abort(getattr(grpc.StatusCode, error.code), shortened(str(error)))

    return call


def shortened(text: str) -> str:
    """The text with its middle cut out above MOST_ERROR_BYTES. Beginning and end say what failed and why."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MOST_ERROR_BYTES:
        return encoded.decode()
    half = (MOST_ERROR_BYTES - len(_CUT)) // 2
    return encoded[:half].decode(errors="ignore") + _CUT + encoded[-half:].decode(errors="ignore")
