"""The gRPC client of one plugin, for helper processes: every call blocks, has a deadline and marks progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from actors._cri.call import go_name
from actors._cri.channel import OPTIONS
from actors._plugins.client import unary
from actors.volume.csi import policy
from actors.volume.steps.errors import VolumeError
from proto.plugins import csi_pb2, registration_pb2

CALL_S = 120.0
"""The kubelet's deadline of a CSI call: drivers format disks and wait for networks."""
MEET_S = 5.0
"""Deadline of calls that need only the driver process itself."""
MOST_ERROR = 4096
"""Characters of a driver's error. It goes into logs, events and a CSINode's or pod's messages."""
MARK_S = 1.0
"""Period of the helper's progress marks during a call, so that only the call's deadline limits it."""

NODE = csi_pb2.DESCRIPTOR.services_by_name["Node"]
IDENTITY = csi_pb2.DESCRIPTOR.services_by_name["Identity"]
REGISTRATION = registration_pb2.DESCRIPTOR.services_by_name["Registration"]


class CallFailed(VolumeError):
    """A call failed; the text is Go's. `final`: the call had no effect and has none later."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {details}")
        self.code = code
        self.final = policy.is_final(code)


class Plugin:
    """A connection to a plugin."""

    def __init__(self, channel: Any, mark: Callable[[], object]) -> None:
        self._channel, self._mark = channel, mark

    def call(self, service: ServiceDescriptor, rpc: str, request: Any, timeout_s: float = CALL_S) -> Any:
        """Call an rpc and return its answer. Raises CallFailed."""
        call = unary(self._channel, service, rpc).future(request, timeout=timeout_s)
        while True:
            self._mark()
            try:
                return call.result(timeout=MARK_S)
            except grpc.FutureTimeoutError:
                continue
            except grpc.RpcError as error:
                status: Any = error  # what a call raises is also a grpc.Call
                raise CallFailed(go_name(status.code().name), (status.details() or "")[:MOST_ERROR]) from None

    def node(self, rpc: str, request: Any, timeout_s: float = CALL_S) -> Any:
        """Call an rpc of CSI's Node service. Raises CallFailed."""
        return self.call(NODE, rpc, request, timeout_s)

    def capabilities(self, timeout_s: float = CALL_S) -> frozenset[str]:
        """The driver's Node capabilities, by the specification's names. Raises CallFailed."""
        answer = self.node("NodeGetCapabilities", csi_pb2.NodeGetCapabilitiesRequest(), timeout_s)
        names = csi_pb2.NodeServiceCapability.RPC.Type
        known = set(names.values())
        return frozenset(names.Name(one.rpc.type) for one in answer.capabilities if one.rpc.type in known)


@contextmanager
def connected(socket: str, mark: Callable[[], object]) -> Iterator[Plugin]:
    """A connection to the plugin behind the socket, opened at the first call."""
    channel = grpc.insecure_channel(f"unix://{socket}", options=OPTIONS)
    try:
        yield Plugin(channel, mark)
    finally:
        channel.close()
