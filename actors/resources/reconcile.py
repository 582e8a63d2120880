"""Gives running containers the CPUs that are assigned to them now (the kubelet's cpumanager reconcileState).

Most often that is the shared pool, which shrinks when a container gets exclusive CPUs and grows when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors._cri.client import Cri
from actors._cri.errors import CriError
from actors.resources.machine.cpusets import CpuListError, parse
from proto.cri import api_pb2 as pb
from proto.cri import labels

log = logging.getLogger(__name__)

CHECK_ROUNDS = 6
"""Every so many rounds the runtime is asked what each container has; between them, only about new ones."""


class Reconciler:
    """State: the CPUs that each container had when it was looked at last, by CRI ID."""

    def __init__(self, cri: Cri, wanted: Callable[[str, str], str | None]) -> None:
        """`wanted(pod_uid, container)`: its CPUs in the kernel's list format; None for a pod that is not ours."""
        self._cri = cri
        self._wanted = wanted
        self._known: dict[str, str] = {}
        self._rounds = 0
        self.updates = 0
        """Containers whose CPUs were changed."""

    async def run(self) -> None:
        """One round over all running containers. A container that cannot be changed is tried in the next one."""
        try:
            found = await self._cri.list_containers(_RUNNING)
        except CriError as error:
            log.warning("cannot compare the CPUs of containers: %s; trying again in the next round", error)
            return
        if self._rounds % CHECK_ROUNDS == 0:
            self._known.clear()
        self._rounds += 1
        ids = {container.id for container in found}
        self._known = {identity: cpus for identity, cpus in self._known.items() if identity in ids}
        for container in found:
            wanted = self._wanted(
                container.labels.get(labels.POD_UID, ""), container.labels.get(labels.CONTAINER_NAME, "")
            )
            if wanted:
                await self._reconcile(container.id, wanted)

    async def _reconcile(self, identity: str, wanted: str) -> None:
        try:
            if identity not in self._known:
                status = (await self._cri.container_status(identity)).status
                self._known[identity] = status.resources.linux.cpuset_cpus
            if not _equal(self._known[identity], wanted):
                del self._known[identity]
                await self._cri.update_container_resources(identity, pb.LinuxContainerResources(cpuset_cpus=wanted))
                self._known[identity] = wanted
                self.updates += 1
        except CriError as error:
            log.warning("cannot give container %s the CPUs %s: %s; trying again", identity, wanted, error)


_RUNNING = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))


def _equal(shown: str, wanted: str) -> bool:
    try:
        return parse(shown) == parse(wanted)
    except CpuListError:
        return False
