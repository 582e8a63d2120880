"""The pods of the benchmark, as the runtime and as the agent gets them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from supervisor.cli.errors import CommandError

if TYPE_CHECKING:
    from proto.cri import api_pb2 as pb
    from proto.v1 import Pod

PREFIX = "nodevisor-bench-"
LABEL = "nodevisor-bench"
"""Of the agent's pods. Their sandboxes have it, too."""
FLOOR_LABEL = "nodevisor-bench-floor"
"""Of the sandboxes without the agent. They have no pod's UID as label, so no node agent takes them for a pod's."""
GRACE_S = 1
SETTLE_S = 1.0
"""Between start and stop. A program that is just starting does not handle SIGTERM yet, and costs the grace period."""
MOST = 50
SYSTEMD_PARENT = "system.slice"
"""runc's systemd driver refuses a container without a slice."""


class Plan(NamedTuple):
    """The pods to start."""

    id: str
    """Random, 8 hexadecimal digits."""
    pods: int
    image: str
    command: tuple[str, ...]
    """Empty: the image's own."""
    cgroup_parent: str = ""
    """Of the sandboxes without the agent; empty: the runtime's choice."""

    def names(self) -> list[str]:
        """Names of the pods."""
        return [f"{PREFIX}{self.id}-{number}" for number in range(1, self.pods + 1)]


def manifest(plan: Plan, name: str) -> bytes:
    """A static pod, as JSON."""
    container = {
        "name": "main",
        "image": plan.image,
        "imagePullPolicy": "IfNotPresent",
        **({"command": plan.command} if plan.command else {}),
    }
    return json.dumps({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {LABEL: plan.id}},
        "spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [container]},
    }).encode()  # fmt: skip


def sandbox(plan: Plan, name: str) -> pb.PodSandboxConfig:
    """The same pod's sandbox for the runtime alone."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, uid=name, namespace="default"),
        labels={FLOOR_LABEL: plan.id},
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=plan.cgroup_parent,
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=_namespaces()),
        ),
    )


def container(plan: Plan, image_id: str) -> pb.ContainerConfig:
    """The same pod's container."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="main"),
        image=pb.ImageSpec(image=image_id, user_specified_image=plan.image),
        command=plan.command,
        labels={FLOOR_LABEL: plan.id},
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(namespace_options=_namespaces())
        ),
    )


def _namespaces() -> pb.NamespaceOption:
    """One process namespace for each container, as a kubelet asks."""
    from proto.cri import api_pb2 as pb  # noqa: PLC0415

    return pb.NamespaceOption(pid=pb.CONTAINER)


def check_room(count: int, pods: Sequence[Pod], max_pods: int) -> None:
    """Raise CommandError when the node has no room for `count` more pods."""
    active = sum(pod.status.phase not in ("Succeeded", "Failed") for pod in pods)
    if active + count > max_pods:
        room = max(0, max_pods - active)
        todo = f"use --pods {room} or fewer" if room else "end some pods, or raise maxPods"
        raise CommandError(f"cannot start {count} pods: the node has {active} and maxPods is {max_pods}; {todo}")
