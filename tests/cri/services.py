"""Servers and callers of the CRI services, made from the descriptors in `proto.cri.api_pb2`."""

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from proto.cri import api_pb2 as pb

SERVICES = pb.DESCRIPTOR.services_by_name


def serve(servicer: object, server: grpc.Server, *names: str) -> None:
    """Serve those services with the methods of `servicer`; a method that it lacks answers UNIMPLEMENTED."""
    for service in (SERVICES[name] for name in names):
        handlers = {rpc.name: _handler(servicer, rpc) for rpc in service.methods if hasattr(servicer, rpc.name)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def _handler(servicer: object, rpc: Any) -> Any:
    make = grpc.unary_stream_rpc_method_handler if rpc.server_streaming else grpc.unary_unary_rpc_method_handler
    answer = GetMessageClass(rpc.output_type)
    return make(getattr(servicer, rpc.name), GetMessageClass(rpc.input_type).FromString, answer.SerializeToString)


class Caller:
    """A service's methods by name, as in `Caller(channel, "ImageService").PullImage(request, timeout=5)`."""

    def __init__(self, channel: grpc.Channel, name: str) -> None:
        service = SERVICES[name]
        for rpc in service.methods:
            request, answer = GetMessageClass(rpc.input_type), GetMessageClass(rpc.output_type)
            make = channel.unary_stream if rpc.server_streaming else channel.unary_unary
            path = f"/{service.full_name}/{rpc.name}"
            setattr(self, rpc.name, make(path, request.SerializeToString, answer.FromString))
