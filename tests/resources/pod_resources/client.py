"""A client of the pod resources API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from proto.plugins import podresources_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]


def socket_of(root_dir: str | Path) -> Path:
    return Path(root_dir) / "pod-resources" / "kubelet.sock"


def call(socket: Path, rpc: str, timeout_s: float = 10.0, **fields: Any) -> dict[str, Any]:
    """The answer of v1.PodResourcesLister, with the names of the .proto. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        return ask(channel, rpc, timeout_s, **fields)


def ask(channel: grpc.Channel, rpc: str, timeout_s: float = 10.0, **fields: Any) -> dict[str, Any]:
    """The same on a connection that is open."""
    method = SERVICE.methods_by_name[rpc]
    function = channel.unary_unary(
        f"/{SERVICE.full_name}/{rpc}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    answer = function(GetMessageClass(method.input_type)(**fields), timeout=timeout_s)
    return MessageToDict(answer, preserving_proto_field_name=True)
