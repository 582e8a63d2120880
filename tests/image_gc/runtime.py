"""A runtime that only keeps lists: images, containers and sandboxes put into it by a test and removed by an actor."""

# ruff: noqa: ARG002, N802  (names and arguments are those of the generated servicer)

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from proto.cri import api_pb2 as pb
from tests.cri.fake import FakeRuntime


class ListRuntime(FakeRuntime):
    def __init__(self, socket: Path) -> None:
        self.images: dict[str, pb.Image] = {}
        self.containers: dict[str, pb.Container] = {}
        self.sandboxes: dict[str, pb.PodSandbox] = {}
        self.sandbox_image = ""
        self.layers: dict[str, int] = {}
        """Bytes of writable layers by container ID."""
        self.mounts: dict[str, list[pb.Mount]] = {}
        """Mounts by container ID."""
        self.unreadable: dict[str, grpc.StatusCode] = {}
        """Containers whose status is an error."""
        self.stuck: set[str] = set()
        """IDs that cannot be removed."""
        self.why_stuck = "it is stuck"
        self.calls: list[tuple[str, str]] = []
        super().__init__(socket)

    def removed(self, rpc: str) -> list[str]:
        return [identity for name, identity in self.calls if name == rpc]

    def _remove(self, rpc: str, from_: dict[str, Any], identity: str, context: Any) -> None:
        self.calls.append((rpc, identity))
        if identity in self.stuck:
            context.abort(grpc.StatusCode.UNKNOWN, f"cannot remove {identity}: {self.why_stuck}")
        from_.pop(identity, None)

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        return pb.StatusResponse(info={"config": json.dumps({"sandboxImage": self.sandbox_image})})

    def ContainerStatus(self, request: pb.ContainerStatusRequest, context: Any) -> pb.ContainerStatusResponse:
        identity = request.container_id
        self.calls.append(("ContainerStatus", identity))
        if identity in self.unreadable:
            context.abort(self.unreadable[identity], f"{identity} is broken")
        return pb.ContainerStatusResponse(status=pb.ContainerStatus(id=identity, mounts=self.mounts.get(identity)))

    def ListImages(self, request: pb.ListImagesRequest, context: Any) -> pb.ListImagesResponse:
        return pb.ListImagesResponse(images=list(self.images.values()))

    def ImageStatus(self, request: pb.ImageStatusRequest, context: Any) -> pb.ImageStatusResponse:
        for image in list(self.images.values()):
            if request.image.image in (image.id, *image.repo_tags):
                return pb.ImageStatusResponse(image=image)
        return pb.ImageStatusResponse()

    def RemoveImage(self, request: pb.RemoveImageRequest, context: Any) -> pb.RemoveImageResponse:
        self._remove("RemoveImage", self.images, request.image.image, context)
        return pb.RemoveImageResponse()

    def ListContainers(self, request: pb.ListContainersRequest, context: Any) -> pb.ListContainersResponse:
        return pb.ListContainersResponse(containers=list(self.containers.values()))

    def ReopenContainerLog(self, request: pb.ReopenContainerLogRequest, context: Any) -> pb.ReopenContainerLogResponse:
        self.calls.append(("ReopenContainerLog", request.container_id))
        return pb.ReopenContainerLogResponse()

    def RemoveContainer(self, request: pb.RemoveContainerRequest, context: Any) -> pb.RemoveContainerResponse:
        self._remove("RemoveContainer", self.containers, request.container_id, context)
        return pb.RemoveContainerResponse()

    def StopContainer(self, request: pb.StopContainerRequest, context: Any) -> pb.StopContainerResponse:
        self.calls.append(("StopContainer", request.container_id))
        return pb.StopContainerResponse()

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest, context: Any) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse(items=list(self.sandboxes.values()))

    def StopPodSandbox(self, request: pb.StopPodSandboxRequest, context: Any) -> pb.StopPodSandboxResponse:
        self.calls.append(("StopPodSandbox", request.pod_sandbox_id))
        return pb.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: pb.RemovePodSandboxRequest, context: Any) -> pb.RemovePodSandboxResponse:
        self._remove("RemovePodSandbox", self.sandboxes, request.pod_sandbox_id, context)
        return pb.RemovePodSandboxResponse()

    def ListContainerStats(self, request: pb.ListContainerStatsRequest, context: Any) -> pb.ListContainerStatsResponse:
        found = [
            pb.ContainerStats(
                attributes=pb.ContainerAttributes(id=id_),
                writable_layer=pb.FilesystemUsage(used_bytes=pb.UInt64Value(value=used)),
            )
            for id_, used in self.layers.items()
            if request.filter.id in ("", id_)
        ]
        return pb.ListContainerStatsResponse(stats=found)


@contextmanager
def list_runtime(directory: Path) -> Iterator[ListRuntime]:
    runtime = ListRuntime(directory / "r.sock")
    try:
        yield runtime
    finally:
        runtime.close()
