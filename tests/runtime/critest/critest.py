"""A CRI client like critest's: raw rpcs with their errors, and minimal configurations.

critest is the validation suite of kubernetes-sigs/cri-tools; its pkg/validate has the expectations.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import pytest

from proto.cri import api_pb2 as pb
from tests.containerd.images import BUSYBOX
from tests.cri.services import Caller
from tests.runtime.instance import wait_for

CALL_S = 60
PAUSE = ("sh", "-c", "tail -f /dev/null")
"""critest's long-running container: a program that waits forever."""


class Pod(NamedTuple):
    """A sandbox and its configuration."""

    id: str
    config: pb.PodSandboxConfig


class Said(NamedTuple):
    """The result of a command."""

    out: str
    err: str
    code: int


class Critest:
    """A client of one runtime."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self.runtime: Any = Caller(self._channel, "RuntimeService")
        self.images: Any = Caller(self._channel, "ImageService")

    def close(self) -> None:
        self._channel.close()

    def pod(self, **changes: Any) -> Pod:
        """Run a sandbox; `changes` are fields of its configuration."""
        config = pod_config(**changes)
        request = pb.RunPodSandboxRequest(config=config)
        return Pod(self.runtime.RunPodSandbox(request, timeout=CALL_S).pod_sandbox_id, config)

    def create(self, pod: Pod, command: Sequence[str] = PAUSE, **changes: Any) -> str:
        """Create a container; `changes` are fields of its configuration, `context` of its security context."""
        context = pb.LinuxContainerSecurityContext(**changes.pop("context", {}))
        linux = pb.LinuxContainerConfig(security_context=context, resources=changes.pop("resources", None))
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=f"container-{uuid.uuid4()}", attempt=2),
            image=pb.ImageSpec(image=changes.pop("image", BUSYBOX)),
            command=command,
            linux=linux,
        )
        config.MergeFrom(pb.ContainerConfig(**changes))
        request = pb.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        request.sandbox_config.linux.security_context.privileged |= context.privileged
        return str(self.runtime.CreateContainer(request, timeout=CALL_S).container_id)

    def run(self, pod: Pod, command: Sequence[str] = PAUSE, **changes: Any) -> str:
        """Create and start a container."""
        container = self.create(pod, command, **changes)
        self.runtime.StartContainer(pb.StartContainerRequest(container_id=container), timeout=CALL_S)
        return container

    def status(self, container: str) -> Any:
        """The container's ContainerStatus."""
        return self.runtime.ContainerStatus(pb.ContainerStatusRequest(container_id=container), timeout=CALL_S).status

    def wait_exited(self, container: str) -> Any:
        """Wait for the exit; return the status."""
        wait_for(lambda: self.status(container).state == pb.CONTAINER_EXITED)
        return self.status(container)

    def exec(self, container: str, *command: str, timeout_s: int = 30) -> Said:
        """Run a command with ExecSync."""
        request = pb.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout_s)
        answer = self.runtime.ExecSync(request, timeout=CALL_S)
        return Said(answer.stdout.decode(), answer.stderr.decode(), answer.exit_code)

    def remove(self, pod: Pod) -> None:
        """Stop and remove the sandbox and its containers."""
        self.runtime.StopPodSandbox(pb.StopPodSandboxRequest(pod_sandbox_id=pod.id), timeout=CALL_S)
        self.runtime.RemovePodSandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=pod.id), timeout=CALL_S)


def pod_config(**changes: Any) -> pb.PodSandboxConfig:
    """A configuration with unused names and no labels, log directory or parent cgroup. `context`: security context."""
    linux = pb.LinuxPodSandboxConfig(
        security_context=pb.LinuxSandboxSecurityContext(**changes.pop("context", {})),
        sysctls=changes.pop("sysctls", None),
    )
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=f"pod-{uuid.uuid4()}",
            uid=f"cri-test-uid{uuid.uuid4()}",
            namespace=f"cri-test-namespace{uuid.uuid4()}",
            attempt=2,
        ),
        linux=linux,
    )
    config.MergeFrom(pb.PodSandboxConfig(**changes))
    return config


def refused(call: Any, request: Any) -> str:
    """The status code of an rpc that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=CALL_S)
    error: Any = caught.value
    return str(error.code().name)
