# ruff: noqa: N802, ARG002  (the methods are named after their rpcs)
"""A CSI driver: speaks plugin registration v1 and CSI v1 on unix sockets, and really bind-mounts directories.

Calls can be replaced: they end with any gRPC code, before or after their work, never answer, or report a false success.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from proto.plugins import csi_pb2 as csi
from proto.plugins import registration_pb2 as registration

ALL = ("STAGE_UNSTAGE_VOLUME", "GET_VOLUME_STATS", "EXPAND_VOLUME", "SINGLE_NODE_MULTI_WRITER", "VOLUME_MOUNT_GROUP")
SERVICES = (
    registration.DESCRIPTOR.services_by_name["Registration"],
    csi.DESCRIPTOR.services_by_name["Identity"],
    csi.DESCRIPTOR.services_by_name["Node"],
)


@dataclass
class Fault:
    """Replaces a call's result. `code` of gRPC; `done`: after its work; `hang`: it waits; `lie`: success, no work."""

    code: str = ""
    message: str = ""
    """Of the error; empty for one with the rpc's name."""
    done: bool = False
    hang: bool = False
    lie: bool = False


@dataclass
class Driver:
    """One driver. `start` puts its sockets there, `stop` takes them away; what it mounted stays."""

    registry: Path
    """The directory plugins register in."""
    data: Path
    """A directory for each volume, by its handle."""
    name: str = "csi.test"
    kind: str = "CSIPlugin"
    versions: tuple[str, ...] = ("1.0.0",)
    capabilities: tuple[str, ...] = ("STAGE_UNSTAGE_VOLUME",)
    devices: dict[str, str] = field(default_factory=dict)
    """Volumes that are raw devices: handle to the device's path."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """By rpc, or by rpc and volume: `NodeGetVolumeStats vol-1`; taken when the call comes."""
    max_volumes: int = 7
    """Volume limit of the node."""
    node_id: str = "node-1"
    topology: dict[str, str] = field(default_factory=lambda: {"topology.test/zone": "a"})
    calls: list[tuple[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    """Calls that hang end once it is set."""
    _server: Any = None

    @property
    def socket(self) -> str:
        return str(self.registry / f"{self.name}-reg.sock")

    def start(self) -> Driver:
        self.registry.mkdir(parents=True, exist_ok=True)
        self._server = grpc.server(ThreadPoolExecutor(16), options=(("grpc.so_reuseport", 0),))
        for service in SERVICES:
            handlers = {
                method.name: grpc.unary_unary_rpc_method_handler(
                    self._handler(method.name),
                    request_deserializer=GetMessageClass(method.input_type).FromString,
                    response_serializer=GetMessageClass(method.output_type).SerializeToString,
                )
                for method in service.methods
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        with suppress(FileNotFoundError):
            os.unlink(self.socket)
        assert self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None
        with suppress(FileNotFoundError):
            os.unlink(self.socket)

    def close(self) -> None:
        self.release.set()
        self.stop()

    def of(self, rpc: str) -> list[Any]:
        """The requests of one rpc so far."""
        return [request for name, request in list(self.calls) if name == rpc]

    def names(self, prefix: str = "Node") -> list[str]:
        """The rpcs so far that change something, in order."""
        return [
            n for n, _ in list(self.calls) if n.startswith(prefix) and n not in ("NodeGetCapabilities", "NodeGetInfo")
        ]

    def _handler(self, rpc: str) -> Callable[[Any, Any], Any]:
        work = getattr(self, f"_{rpc}")

        def handle(request: Any, context: Any) -> Any:
            of_volume = f"{rpc} {getattr(request, 'volume_id', '')}"
            fault = self.faults.get(of_volume) or self.faults.get(rpc, Fault())
            self.calls.append((rpc, request))  # last: who sees the call may change the faults
            if fault.hang:
                self.release.wait(60)
            answer = work(request) if fault.done or not (fault.code or fault.lie or fault.hang) else None
            if fault.code:
                context.abort(grpc.StatusCode[fault.code], fault.message or f"{rpc} was told to fail")
            return answer if answer is not None else ANSWERS[rpc]()

        return handle

    def _GetInfo(self, _: Any) -> Any:
        return registration.PluginInfo(type=self.kind, name=self.name, supported_versions=self.versions)

    def _NotifyRegistrationStatus(self, _: Any) -> Any:
        return registration.RegistrationStatusResponse()

    def _GetPluginInfo(self, _: Any) -> Any:
        return csi.GetPluginInfoResponse(name=self.name, vendor_version="1")

    def _Probe(self, _: Any) -> Any:
        return csi.ProbeResponse()

    def _NodeGetInfo(self, _: Any) -> Any:
        zone = csi.Topology(segments=self.topology)
        return csi.NodeGetInfoResponse(
            node_id=self.node_id, max_volumes_per_node=self.max_volumes, accessible_topology=zone
        )

    def _NodeGetCapabilities(self, _: Any) -> Any:
        kinds = csi.NodeServiceCapability.RPC.Type
        return csi.NodeGetCapabilitiesResponse(
            capabilities=[
                csi.NodeServiceCapability(rpc=csi.NodeServiceCapability.RPC(type=kinds.Value(name)))
                for name in self.capabilities
            ]
        )

    def _NodeStageVolume(self, request: Any) -> Any:
        if not request.volume_capability.HasField("block"):
            self._bind(self._volume(request.volume_id), request.staging_target_path)
        return csi.NodeStageVolumeResponse()

    def _NodePublishVolume(self, request: Any) -> Any:
        if request.volume_capability.HasField("block"):
            Path(request.target_path).touch()
            self._bind(self.devices[request.volume_id], request.target_path)
            return csi.NodePublishVolumeResponse()
        os.makedirs(request.target_path, exist_ok=True)
        self._bind(request.staging_target_path or self._volume(request.volume_id), request.target_path)
        if request.readonly:
            subprocess.run(["mount", "-o", "remount,bind,ro", request.target_path], check=True)
        return csi.NodePublishVolumeResponse()

    def _NodeUnpublishVolume(self, request: Any) -> Any:
        self._unbind(request.target_path)
        with suppress(FileNotFoundError):
            os.rmdir(request.target_path) if os.path.isdir(request.target_path) else os.unlink(request.target_path)
        return csi.NodeUnpublishVolumeResponse()

    def _NodeUnstageVolume(self, request: Any) -> Any:
        self._unbind(request.staging_target_path)
        return csi.NodeUnstageVolumeResponse()

    def _NodeGetVolumeStats(self, request: Any) -> Any:
        unit = csi.VolumeUsage
        return csi.NodeGetVolumeStatsResponse(
            usage=[
                csi.VolumeUsage(unit=unit.BYTES, total=1000, used=600, available=400),
                csi.VolumeUsage(unit=unit.INODES, total=100, used=60, available=40),
            ]
        )

    def _NodeExpandVolume(self, request: Any) -> Any:
        return csi.NodeExpandVolumeResponse(capacity_bytes=request.capacity_range.required_bytes)

    def _volume(self, handle: str) -> str:
        (self.data / handle).mkdir(parents=True, exist_ok=True)
        return str(self.data / handle)

    def _bind(self, source: str, target: str) -> None:
        if not bound(target):
            subprocess.run(["mount", "--bind", source, target], check=True)

    def _unbind(self, target: str) -> None:
        while bound(target):
            subprocess.run(["umount", target], check=True)


ANSWERS: dict[str, Any] = {
    method.name: GetMessageClass(method.output_type) for service in SERVICES for method in service.methods
}


def bound(path: str | Path) -> bool:
    """True when something is mounted there; st_dev does not show a bind mount of the same file system."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path).replace(" ", r"\040") for line in lines)


class Mute:
    """A socket that takes connections and says nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(16)
        self._path = path

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)
