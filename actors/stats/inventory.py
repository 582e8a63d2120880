"""Maps cgroups to containers and sandboxes: the runtime's lists, kept for as long as the cgroups exist.

The mapping of a container never changes, so the runtime is asked only when an unknown cgroup appears.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actors._cri.client import CriCalls
from proto.cri import api_pb2 as pb
from proto.cri.labels import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID

_ID = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{12,64})(?:\.scope)?")
"""Runtimes' names of a container's cgroup: `ID`, `crio-ID`, `cri-containerd-ID.scope`."""
_MONITOR = "crio-conmon-"
"""CRI-O's name of the cgroup of conmon, which watches the container of that ID."""
UNKNOWN_S = 60.0
"""A cgroup that the runtime does not know for this long is no container's: no more calls are made for it."""


def container_id(cgroup: str) -> str:
    """The container ID in the last component of a cgroup's path; empty when there is none."""
    found = None if cgroup.startswith(_MONITOR) else _ID.fullmatch(cgroup)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Identity:
    """A container, or a sandbox, whose `name` is empty."""

    id: str
    name: str
    pod_uid: str
    pod_name: str
    namespace: str
    image: str
    created: float
    """Unix seconds."""


class Inventory:
    """State: identities by ID, and the monotonic time since when other IDs are unknown. For the actor's thread."""

    def __init__(self, cri: CriCalls | None) -> None:
        self._cri = cri
        self.known: dict[str, Identity] = {}
        self._unknown_since: dict[str, float] = {}

    async def update(self, present: Iterable[str]) -> None:
        """Look up the IDs in `present` and forget all others. Raises CriError."""
        ids = set(present)
        self.known = {id_: one for id_, one in self.known.items() if id_ in ids}
        now = time.monotonic()
        self._unknown_since = {id_: self._unknown_since.get(id_, now) for id_ in ids - self.known.keys()}
        if self._cri is None or all(now - since > UNKNOWN_S for since in self._unknown_since.values()):
            return
        sandboxes = await self._cri.list_pod_sandbox(
            pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        )
        containers = await running_containers(self._cri)
        for identity in (*map(of_sandbox, sandboxes), *map(of_container, containers)):
            if identity.id in ids and identity.pod_uid:
                self.known[identity.id] = identity
                self._unknown_since.pop(identity.id, None)


async def running_containers(cri: CriCalls) -> Sequence[pb.Container]:
    """The runtime's running containers, without created and exited ones. Raises CriError."""
    running = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    return await cri.list_containers(pb.ContainerFilter(state=running))


def of_sandbox(sandbox: pb.PodSandbox) -> Identity:
    """The identity of a sandbox in the runtime's list."""
    meta = sandbox.metadata
    return Identity(sandbox.id, "", meta.uid, meta.name, meta.namespace, "", sandbox.created_at / 1e9)


def of_container(container: pb.Container) -> Identity:
    """The identity of a container in the runtime's list; without a pod's label the pod UID is empty."""
    labels = container.labels
    return Identity(
        id=container.id,
        name=labels.get(CONTAINER_NAME, container.metadata.name),
        pod_uid=labels.get(POD_UID, ""),
        pod_name=labels.get(POD_NAME, ""),
        namespace=labels.get(POD_NAMESPACE, ""),
        image=container.image.user_specified_image or container.image.image,
        created=container.created_at / 1e9,
    )
