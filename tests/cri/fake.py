"""A CRI server inside the test process that hangs, refuses and streams, which a real runtime cannot be made to do."""

# ruff: noqa: ARG002, N802  (names and arguments are those of the rpcs)

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from proto.cri import api_pb2 as pb
from tests.cri.services import serve


class FakeRuntime:
    """Answers Version; hangs in Status until `release` is set; streams what is put into `events`, None to end it."""

    def __init__(self, socket: Path) -> None:
        self.endpoint = f"unix://{socket}"
        self.release = threading.Event()
        self.events: queue.Queue[pb.ContainerEventResponse | None] = queue.Queue()
        self.fail_with: tuple[grpc.StatusCode, str] | None = None
        self.hanging = threading.Event()
        """Set while a call of Exec, ExecSync or StartContainer is unanswered."""
        self.cancelled = threading.Event()
        """Set after its caller has cancelled."""
        self.seconds_left: float | None = None
        """Seconds left of the last call's deadline when it arrived; None without a deadline."""
        self.traceparent = ""
        """Of the last Version's metadata."""
        self.runtime_config: pb.RuntimeConfigResponse | None = None
        """None: the rpc is unimplemented."""
        self._server = grpc.server(ThreadPoolExecutor(4))
        serve(self, self._server, "RuntimeService", "ImageService")
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def close(self) -> None:
        self.release.set()
        self.events.put(None)
        self._server.stop(0).wait()

    def Version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        self.seconds_left = context.time_remaining()
        self.traceparent = dict(context.invocation_metadata()).get("traceparent", "")
        if self.fail_with:
            context.abort(*self.fail_with)
        return pb.VersionResponse(version="0.1.0", runtime_name="fake", runtime_version="1.0", runtime_api_version="v1")

    def RuntimeConfig(self, request: pb.RuntimeConfigRequest, context: Any) -> pb.RuntimeConfigResponse:
        if self.runtime_config is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method RuntimeConfig")
        return self.runtime_config

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        self.release.wait(30)
        return pb.StatusResponse()

    def RunPodSandbox(self, request: pb.RunPodSandboxRequest, context: Any) -> pb.RunPodSandboxResponse:
        self.seconds_left = context.time_remaining()
        return pb.RunPodSandboxResponse(pod_sandbox_id="s1")

    def StopContainer(self, request: pb.StopContainerRequest, context: Any) -> pb.StopContainerResponse:
        self.seconds_left = context.time_remaining()
        return pb.StopContainerResponse()

    def Exec(self, request: pb.ExecRequest, context: Any) -> pb.ExecResponse:
        self.seconds_left = context.time_remaining()
        if self.fail_with:
            context.abort(*self.fail_with)
        if request.cmd[0] == "hang":
            self._hang(context)
        return pb.ExecResponse(url=f"http://here/{request.container_id}/{len(request.cmd[0])}")

    def ExecSync(self, request: pb.ExecSyncRequest, context: Any) -> pb.ExecSyncResponse:
        self._hang(context)
        return pb.ExecSyncResponse()

    def StartContainer(self, request: pb.StartContainerRequest, context: Any) -> pb.StartContainerResponse:
        self._hang(context)
        return pb.StartContainerResponse()

    def _hang(self, context: Any) -> None:
        """Until `release` is set."""
        ended = threading.Event()

        def over() -> None:
            if not ended.is_set():
                self.cancelled.set()

        if not context.add_callback(over):
            self.cancelled.set()  # over by the time it is taken up
        self.hanging.set()
        self.release.wait(30)
        ended.set()

    def ListImages(self, request: pb.ListImagesRequest, context: Any) -> pb.ListImagesResponse:
        return pb.ListImagesResponse(images=[pb.Image(id="big", username="x" * (5 * 1024 * 1024))])

    def GetContainerEvents(self, request: pb.GetEventsRequest, context: Any) -> Iterator[pb.ContainerEventResponse]:
        while (event := self.events.get()) is not None:
            yield event
