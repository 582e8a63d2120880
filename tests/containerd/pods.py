"""CRI requests for small pods, for tests that talk to the runtime without the agent."""

import uuid
from collections.abc import Mapping, Sequence

from actors._cri.client import Cri
from proto.cri import api_pb2 as pb
from tests.containerd.images import BUSYBOX


def sandbox_config(
    name: str, *, host_network: bool = False, labels: Mapping[str, str] | None = None
) -> pb.PodSandboxConfig:
    """A sandbox in the namespace `default` with a UID of its own."""
    network = pb.NODE if host_network else pb.POD
    context = pb.LinuxSandboxSecurityContext(namespace_options=pb.NamespaceOption(network=network))
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, uid=str(uuid.uuid4()), namespace="default"),
        labels=labels,
        linux=pb.LinuxPodSandboxConfig(security_context=context),
    )


def container_config(
    command: Sequence[str], *, name: str = "main", image: str = BUSYBOX, log_path: str = ""
) -> pb.ContainerConfig:
    """A container that runs `command`."""
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name),
        image=pb.ImageSpec(image=image),
        command=command,
        log_path=log_path,
        linux=pb.LinuxContainerConfig(),
    )


def run_pod(cri: Cri, name: str, command: Sequence[str] = ("sleep", "1000")) -> tuple[str, str]:
    """Run a pod of one container; the IDs of sandbox and container."""
    config = sandbox_config(name)
    sandbox = cri.run_pod_sandbox(config).result()
    container = cri.create_container(sandbox, container_config(command), config).result()
    cri.start_container(container).result()
    return sandbox, container
