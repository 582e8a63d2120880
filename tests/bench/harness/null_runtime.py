"""A CRI server that keeps records and runs nothing: `python -m tests.bench.harness.null_runtime SOCKET`.

Against it the agent's own cost for a pod shows, without a runtime's. It is a process of its own, so that its CPU time
is not the agent's. Sandboxes and containers have the states that a real runtime reports; they have no processes.
"""

# ruff: noqa: ARG002, N802  (names and arguments are those of the rpcs)

import argparse
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from actors._cri.client import Cri
from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.containerd.images import BUSYBOX
from tests.cri.services import serve
from tests.harness import wait_for

THREADS = 32
IMAGE_ID = "sha256:" + "0" * 64


class NullRuntime:
    """RuntimeService and ImageService over two dictionaries of records."""

    def __init__(self, execs: Path | None = None) -> None:
        """`execs` gets a line for each ExecSync: monotonic seconds and the command's second word."""
        self._execs = execs.open("w", buffering=1) if execs is not None else None
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._sandboxes: dict[str, pb.PodSandboxStatus] = {}
        self._containers: dict[str, pb.ContainerStatus] = {}
        self._owners: dict[str, str] = {}
        """The sandbox of each container."""

    # The runtime

    def Version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        return pb.VersionResponse(version="0.1.0", runtime_name="null", runtime_version="1.0", runtime_api_version="v1")

    def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        conditions = [pb.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        return pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))

    # Sandboxes

    def RunPodSandbox(self, request: pb.RunPodSandboxRequest, context: Any) -> pb.RunPodSandboxResponse:
        config, number = request.config, next(self._numbers)
        status = pb.PodSandboxStatus(
            id=f"sandbox-{number:060}",
            metadata=config.metadata,
            state=pb.SANDBOX_READY,
            created_at=time.time_ns(),
            network=pb.PodSandboxNetworkStatus(ip=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"),
            linux=pb.LinuxPodSandboxStatus(
                namespaces=pb.Namespace(options=config.linux.security_context.namespace_options)
            ),
            labels=config.labels,
            annotations=config.annotations,
        )
        with self._lock:
            self._sandboxes[status.id] = status
        return pb.RunPodSandboxResponse(pod_sandbox_id=status.id)

    def StopPodSandbox(self, request: pb.StopPodSandboxRequest, context: Any) -> pb.StopPodSandboxResponse:
        with self._lock:
            if (sandbox := self._sandboxes.get(request.pod_sandbox_id)) is not None:
                sandbox.state = pb.SANDBOX_NOTREADY
                for container in self._of(request.pod_sandbox_id):
                    _end(self._containers[container])
        return pb.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: pb.RemovePodSandboxRequest, context: Any) -> pb.RemovePodSandboxResponse:
        with self._lock:
            self._sandboxes.pop(request.pod_sandbox_id, None)
            for container in self._of(request.pod_sandbox_id):
                del self._containers[container], self._owners[container]
        return pb.RemovePodSandboxResponse()

    def PodSandboxStatus(self, request: pb.PodSandboxStatusRequest, context: Any) -> pb.PodSandboxStatusResponse:
        with self._lock:
            return pb.PodSandboxStatusResponse(status=_known(self._sandboxes, request.pod_sandbox_id, context))

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest, context: Any) -> pb.ListPodSandboxResponse:
        wanted = request.filter
        with self._lock:
            return pb.ListPodSandboxResponse(
                items=[
                    pb.PodSandbox(
                        id=status.id,
                        metadata=status.metadata,
                        state=status.state,
                        created_at=status.created_at,
                        labels=status.labels,
                        annotations=status.annotations,
                    )
                    for status in self._sandboxes.values()
                    if wanted.id in ("", status.id)
                    and not (wanted.HasField("state") and wanted.state.state != status.state)
                    and wanted.label_selector.items() <= status.labels.items()
                ]
            )

    # Containers

    def CreateContainer(self, request: pb.CreateContainerRequest, context: Any) -> pb.CreateContainerResponse:
        config = request.config
        status = pb.ContainerStatus(
            id=f"container-{next(self._numbers):058}",
            metadata=config.metadata,
            state=pb.CONTAINER_CREATED,
            created_at=time.time_ns(),
            image=config.image,
            image_ref=IMAGE_ID,
            image_id=IMAGE_ID,
            labels=config.labels,
            annotations=config.annotations,
            mounts=config.mounts,
            log_path=f"{request.sandbox_config.log_directory}/{config.log_path}",
        )
        with self._lock:
            _known(self._sandboxes, request.pod_sandbox_id, context)
            self._containers[status.id] = status
            self._owners[status.id] = request.pod_sandbox_id
        return pb.CreateContainerResponse(container_id=status.id)

    def StartContainer(self, request: pb.StartContainerRequest, context: Any) -> pb.StartContainerResponse:
        with self._lock:
            status = _known(self._containers, request.container_id, context)
            status.state, status.started_at = pb.CONTAINER_RUNNING, time.time_ns()
        Path(status.log_path).touch()  # the agent would have a missing log opened again at each look
        return pb.StartContainerResponse()

    def StopContainer(self, request: pb.StopContainerRequest, context: Any) -> pb.StopContainerResponse:
        with self._lock:
            if (status := self._containers.get(request.container_id)) is not None:
                _end(status)
        return pb.StopContainerResponse()

    def RemoveContainer(self, request: pb.RemoveContainerRequest, context: Any) -> pb.RemoveContainerResponse:
        with self._lock:
            self._containers.pop(request.container_id, None)
            self._owners.pop(request.container_id, None)
        return pb.RemoveContainerResponse()

    def ContainerStatus(self, request: pb.ContainerStatusRequest, context: Any) -> pb.ContainerStatusResponse:
        with self._lock:
            return pb.ContainerStatusResponse(status=_known(self._containers, request.container_id, context))

    def ListContainers(self, request: pb.ListContainersRequest, context: Any) -> pb.ListContainersResponse:
        wanted = request.filter
        with self._lock:
            return pb.ListContainersResponse(
                containers=[
                    pb.Container(
                        id=status.id,
                        pod_sandbox_id=self._owners[status.id],
                        metadata=status.metadata,
                        image=status.image,
                        image_ref=status.image_ref,
                        image_id=status.image_id,
                        state=status.state,
                        created_at=status.created_at,
                        labels=status.labels,
                        annotations=status.annotations,
                    )
                    for status in self._containers.values()
                    if wanted.id in ("", status.id)
                    and wanted.pod_sandbox_id in ("", self._owners[status.id])
                    and not (wanted.HasField("state") and wanted.state.state != status.state)
                    and wanted.label_selector.items() <= status.labels.items()
                ]
            )

    def ExecSync(self, request: pb.ExecSyncRequest, context: Any) -> pb.ExecSyncResponse:
        if self._execs is not None:
            self._execs.write(f"{time.monotonic()} {request.cmd[1]}\n")
        return pb.ExecSyncResponse(exit_code=0)

    def _of(self, sandbox: str) -> list[str]:
        return [container for container, owner in self._owners.items() if owner == sandbox]

    # Images

    def ListImages(self, request: pb.ListImagesRequest, context: Any) -> pb.ListImagesResponse:
        return pb.ListImagesResponse(images=[_image()])

    def ImageStatus(self, request: pb.ImageStatusRequest, context: Any) -> pb.ImageStatusResponse:
        return pb.ImageStatusResponse(image=_image())

    def PullImage(self, request: pb.PullImageRequest, context: Any) -> pb.PullImageResponse:
        return pb.PullImageResponse(image_ref=IMAGE_ID)

    def ImageFsInfo(self, request: pb.ImageFsInfoRequest, context: Any) -> pb.ImageFsInfoResponse:
        return pb.ImageFsInfoResponse()


def _end(status: pb.ContainerStatus) -> None:
    if status.state != pb.CONTAINER_EXITED:
        status.state, status.finished_at, status.reason = pb.CONTAINER_EXITED, time.time_ns(), "Completed"


def _known(records: dict[str, Any], identity: str, context: Any) -> Any:
    if identity not in records:
        context.abort(grpc.StatusCode.NOT_FOUND, f"no {identity}")
    return records[identity]


def _image() -> pb.Image:
    return pb.Image(id=IMAGE_ID, repo_tags=[BUSYBOX], size=1 << 20)


@contextmanager
def null_runtime(directory: Path, execs: Path | None = None) -> Iterator[Cri]:
    """A client of such a server, which ends with the block."""
    socket = directory / "null.sock"
    command = [sys.executable, "-P", "-m", "tests.bench.harness.null_runtime", str(socket)]
    process = subprocess.Popen([*command, *(["--execs", str(execs)] if execs is not None else [])])
    cri = Cri(f"unix://{socket}")
    try:
        wait_for(lambda: _answers(cri), 20)
        yield cri
    finally:
        cri.close()
        process.terminate()
        process.wait(10)


def _answers(cri: Cri) -> bool:
    try:
        return bool(cri.version().result())
    except CriError:
        return False


def main(arguments: Iterable[str] | None = None) -> None:
    """Serve on a socket until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.harness.null_runtime", description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--execs", type=Path, help="note each ExecSync in this file")
    options = parser.parse_args(None if arguments is None else list(arguments))
    server = grpc.server(ThreadPoolExecutor(THREADS))
    serve(NullRuntime(options.execs), server, "RuntimeService", "ImageService")
    server.add_insecure_port(f"unix://{options.socket}")
    server.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0).wait()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
