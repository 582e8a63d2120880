"""Whose a cgroup is: what the runtime says of containers and sandboxes, kept for as long as their cgroups are there.

It cannot change while a container lives, so the runtime is asked only when a cgroup appears that nobody knows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from actors._cri.client import CriCalls
from proto.cri import api_pb2 as pb

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

_ID = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{12,64})(?:\.scope)?")
"""As runtimes name a container's cgroup: `ID`, `crio-ID`, `cri-containerd-ID.scope`."""
STRANGER_S = 60.0
"""A cgroup that the runtime still does not know after this long is nobody's: asking again would not help."""


def container_id(cgroup: str) -> str:
    """The ID in the last component of a container's cgroup; empty when there is none."""
    found = _ID.fullmatch(cgroup)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Identity:
    """A container, or a sandbox: then `name` is empty."""

    id: str
    name: str
    pod_uid: str
    pod_name: str
    namespace: str
    image: str
    created: float
    """Unix seconds."""


class Inventory:
    """State: what is known, and since when nobody knew the others. For the actor's thread."""

    def __init__(self, cri: CriCalls | None) -> None:
        self._cri = cri
        self.known: dict[str, Identity] = {}
        self._strangers: dict[str, float] = {}

    async def learn(self, present: Iterable[str]) -> None:
        """Know these IDs as far as the runtime does, and forget all others. Raises CriError."""
        ids = set(present)
        self.known = {id_: one for id_, one in self.known.items() if id_ in ids}
        now = time.monotonic()
        self._strangers = {id_: self._strangers.get(id_, now) for id_ in ids - self.known.keys()}
        if self._cri is None or all(now - since > STRANGER_S for since in self._strangers.values()):
            return
        sandboxes = await self._cri.list_pod_sandbox(
            pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        )
        containers = await self._cri.list_containers(
            pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))
        )
        for identity in (*map(of_sandbox, sandboxes), *map(of_container, containers)):
            if identity.id in ids and identity.pod_uid:
                self.known[identity.id] = identity
                self._strangers.pop(identity.id, None)


def of_sandbox(sandbox: pb.PodSandbox) -> Identity:
    """A sandbox as a list has it."""
    meta = sandbox.metadata
    return Identity(sandbox.id, "", meta.uid, meta.name, meta.namespace, "", sandbox.created_at / 1e9)


def of_container(container: pb.Container) -> Identity:
    """A container as a list has it; without pod UID when it is none of a pod's."""
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
