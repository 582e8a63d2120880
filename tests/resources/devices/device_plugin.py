# ruff: noqa: N802  (the methods are named after their rpcs)
"""A device plugin: speaks the device plugin API v1beta1 on unix sockets, and registers with the kubelet's socket.

Calls can be replaced: they end with any gRPC code, never answer, or answer something else. Run as a program it
registers again whenever the kubelet's socket is a new one, as real plugins do.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from proto.plugins import deviceplugin_pb2 as pb
from proto.plugins import registration_pb2 as registration
from tests.resources.plugin_server import Served

SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]


@dataclass
class Plugin(Served):
    """One plugin of one resource."""

    directory: Path
    resource: str
    devices: dict[str, str] = field(default_factory=lambda: {"d0": "Healthy", "d1": "Healthy"})
    """Health by ID."""
    nodes: dict[str, int] = field(default_factory=dict)
    """NUMA nodes by ID."""
    prefers: tuple[str, ...] = ()
    """Preferred devices, if it has an opinion."""
    pre_start: bool = False
    endpoint: str = "test.sock"
    info: dict[str, Any] = field(default_factory=dict)
    """Replaced fields of PluginInfo."""
    _lists: list[queue.Queue[Any]] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.directory / self.endpoint

    def serve(self) -> Plugin:
        self.listen(self.socket, SERVICE, REGISTRATION)
        return self

    def register(self, version: str = "v1beta1", endpoint: str | None = None, timeout_s: float = 20.0) -> None:
        """Register with the kubelet. Raises grpc.RpcError when it refuses."""
        with grpc.insecure_channel(f"unix://{self.directory}/kubelet.sock") as channel:
            method = pb.DESCRIPTOR.services_by_name["Registration"].methods_by_name["Register"]
            channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )(
                pb.RegisterRequest(
                    version=version,
                    endpoint=self.endpoint if endpoint is None else endpoint,
                    resource_name=self.resource,
                    options=self._options(),
                ),
                timeout=timeout_s,
                wait_for_ready=True,
            )

    def start(self) -> Plugin:
        self.serve().register()
        return self

    def relist(self, **devices: str) -> None:
        """Send a new list of devices to each watcher."""
        self.devices = devices
        for one in self._lists:
            one.put(self._response())

    def end_lists(self) -> None:
        """End ListAndWatch, and go on serving."""
        for one in self._lists:
            one.put(None)

    def close(self) -> None:
        self.end_lists()
        super().close()

    def _options(self) -> Any:
        return pb.DevicePluginOptions(
            pre_start_required=self.pre_start, get_preferred_allocation_available=bool(self.prefers)
        )

    def _response(self) -> Any:
        listed = []
        for one, health in self.devices.items():
            near = pb.TopologyInfo(nodes=[pb.NUMANode(ID=self.nodes[one])]) if one in self.nodes else None
            listed.append(pb.Device(ID=one, health=health, topology=near))
        return pb.ListAndWatchResponse(devices=listed)

    def _GetDevicePluginOptions(self, _: Any) -> Any:
        return self._options()

    def _ListAndWatch(self, _: Any) -> Iterator[Any]:
        mine: queue.Queue[Any] = queue.Queue()
        self._lists.append(mine)
        answer = self._response()
        while answer is not None:
            yield answer
            answer = mine.get()

    def _GetPreferredAllocation(self, request: Any) -> Any:
        (asked,) = request.container_requests
        chosen = [*asked.must_include_deviceIDs, *self.prefers][: asked.allocation_size]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=chosen)]
        )

    def _Allocate(self, request: Any) -> Any:
        (asked,) = request.container_requests
        return pb.AllocateResponse(
            container_responses=[
                pb.ContainerAllocateResponse(
                    envs={"DEVICES": ",".join(sorted(asked.devices_ids))},
                    devices=[pb.DeviceSpec(container_path="/dev/test", host_path="/dev/null", permissions="rw")],
                    mounts=[pb.Mount(container_path="/test", host_path=str(self.directory), read_only=True)],
                    annotations={"vendor.test/devices": str(len(asked.devices_ids))},
                )
            ]
        )

    def _PreStartContainer(self, _: Any) -> Any:
        return pb.PreStartContainerResponse()

    def _GetInfo(self, _: Any) -> Any:
        fields = {"type": "DevicePlugin", "name": self.resource, "endpoint": str(self.socket)}
        return registration.PluginInfo(**{**fields, "supported_versions": ["v1beta1"], **self.info})

    def _NotifyRegistrationStatus(self, _: Any) -> Any:
        return registration.RegistrationStatusResponse()


def main(directory: str, resource: str, count: str) -> None:
    """Serve until killed; register with each new socket of the kubelet."""
    plugin = Plugin(Path(directory), resource, {f"d{number}": "Healthy" for number in range(int(count))})
    registered: object = None
    while True:
        with suppress(OSError, grpc.RpcError):
            found = os.stat(f"{directory}/kubelet.sock")
            if (found.st_ino, found.st_ctime_ns) != registered:
                plugin.close()
                plugin.serve().register(timeout_s=5.0)
                registered = (found.st_ino, found.st_ctime_ns)
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
