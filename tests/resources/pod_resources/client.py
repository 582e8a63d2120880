"""A client of the pod resources API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from proto.plugins import podresources_pb2 as pb
from proto.plugins import podresourcesv1alpha1_pb2 as alpha

SERVICES = {one.full_name: one for file in (pb, alpha) for one in file.DESCRIPTOR.services_by_name.values()}


def socket_of(root_dir: str | Path) -> Path:
    return Path(root_dir) / "pod-resources" / "kubelet.sock"


def call(socket: Path, rpc: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """The answer of PodResourcesLister, with the names of the .proto. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        return ask(channel, rpc, version, **fields)


def ask(channel: grpc.Channel, rpc: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    """The same on a connection that is open."""
    service = SERVICES[f"{version}.PodResourcesLister"]
    method = service.methods_by_name[rpc]
    function = channel.unary_unary(
        f"/{service.full_name}/{rpc}",
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    answer = function(GetMessageClass(method.input_type)(**fields), timeout=10)
    return MessageToDict(answer, preserving_proto_field_name=True)
