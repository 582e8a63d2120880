"""The gRPC client of one device plugin: its list of devices, and the calls for containers.

Source: the device plugin API v1beta1; pkg/kubelet/cm/devicemanager/endpoint.go of Kubernetes 1.36.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import grpc

from actors._cri.call import Call, wrapped
from actors._cri.errors import CriError
from actors._plugins.client import Client
from actors.resources.devices.policy import Question
from proto.common.backoff import Backoff, BackoffHistory
from proto.plugins import deviceplugin_pb2 as pb

MEET_S = 10.0
"""Deadline of the first call. A plugin may listen only after its registration was answered."""
PREFER_S = 5.0
ALLOCATE_S = 30.0
"""The kubelet has no deadline here. A plugin that needs longer is asked again, with the pod waiting."""
PRE_START_S = 30.0
"""The kubelet's deadline."""
LIST_PAUSE_S = 0.1
"""Shortest time between two lists of devices that are read, for a plugin that sends without end."""
LIST_BACKOFF = Backoff(initial_s=LIST_PAUSE_S, cap_s=5.0, reset_after_s=10.0)
"""Between two lists that change something. Each is written, and sent to the Node and to waiting pods."""

_SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]


class Connection:
    """A connection to a plugin of one resource. `on_list` and `on_end` are called in the stream's thread."""

    def __init__(
        self,
        resource: str,
        socket: str,
        on_list: Callable[[Connection], None],
        on_end: Callable[[Connection, str], None],
    ) -> None:
        self.resource, self.socket = resource, socket
        self.prefers = False
        """It has GetPreferredAllocation."""
        self.pre_start = False
        """PreStartContainer is due before each start of a container."""
        self.hung_until = 0.0
        """Monotonic time before which it is not called, as its last call did not end."""
        self.next_list = 0.0
        """Monotonic time before which no list is taken."""
        self.list_history = BackoffHistory()
        self._on_list, self._on_end = on_list, on_end
        self._client = Client(socket)
        self._stream: Any = None
        self._closed = threading.Event()
        self._is_told = False
        """`on_list` was called, and its list is not taken yet."""
        self._latest: Any = None

    def options(self) -> Call[Any]:
        """GetDevicePluginOptions; waits until the plugin listens."""
        return self._call("GetDevicePluginOptions", pb.Empty(), MEET_S, wait_for_ready=True)

    def watch(self) -> None:
        """Start ListAndWatch, in a thread: gRPC delivers a stream only to a thread that waits for it."""
        threading.Thread(target=self._follow, name="device-list", daemon=True).start()

    def take_list(self) -> Any:
        """The latest ListAndWatchResponse."""
        self._is_told = False  # first: a list that comes now is told
        return self._latest

    def preferred(self, question: Question) -> Call[Any]:
        """GetPreferredAllocation."""
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(question.available),
            must_include_deviceIDs=sorted(question.must_include),
            allocation_size=question.size,
        )
        return self._call("GetPreferredAllocation", pb.PreferredAllocationRequest(container_requests=[one]), PREFER_S)

    def allocate(self, ids: Collection[str]) -> Call[Any]:
        """Allocate, for one container."""
        one = pb.ContainerAllocateRequest(devices_ids=ids)
        return self._call("Allocate", pb.AllocateRequest(container_requests=[one]), ALLOCATE_S)

    def pre_start_container(self, ids: Collection[str]) -> Call[Any]:
        """PreStartContainer."""
        return self._call("PreStartContainer", pb.PreStartContainerRequest(devices_ids=ids), PRE_START_S)

    def close(self) -> None:
        """End the stream and all calls. `on_end` may follow."""
        self._closed.set()
        self._client.close()

    def _call(self, rpc: str, request: Any, timeout_s: float, *, wait_for_ready: bool = False) -> Call[Any]:
        return self._client.call(_SERVICE, rpc, request, timeout_s, wait_for_ready=wait_for_ready)

    def _follow(self) -> None:
        try:
            for response in self._client.stream(_SERVICE, "ListAndWatch", pb.Empty()):
                self._latest = response
                if not self._is_told:
                    self._is_told = True
                    self._on_list(self)
                if self._closed.wait(LIST_PAUSE_S):
                    break
            reason = "it ended ListAndWatch"
        except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:
            ended: CriError = wrapped(error, "ListAndWatch")
            reason = f"ListAndWatch ended: {ended.grpc_text()}"
        self._on_end(self, reason)
