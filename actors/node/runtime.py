"""What the runtime says for the Node's status, and what it is told for it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from actors._base import gather
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors.node import policy
from actors.node.policy import Object

log = logging.getLogger(__name__)


class Said(NamedTuple):
    """One look at the runtime."""

    version: str
    """`containerd://1.6.20`; `Unknown` is the kubelet's word while it never answered."""
    problems: list[str]
    """Why the node is not ready because of it."""
    status: Object
    """Parts of the status: images, runtimeHandlers, features."""


class Runtime:
    """Remembers the version over a runtime that is away, and which addresses for pods it was given."""

    def __init__(self, cri: RelayedCri, max_images: int) -> None:
        self._cri = cri
        self._max_images = max_images
        self._version = ""
        self._pod_cidr = ""

    async def look(self) -> Said:
        """Ask it."""
        try:
            # All at once: a new node is waited for, and each answer takes its time on a machine that starts.
            version, status, listed = await gather(self._cri.version(), self._cri.status(), self._cri.list_images())
        except CriError as error:
            log.debug("the runtime does not answer: %s", error)
            self._pod_cidr = ""  # whoever comes after it is told again
            return Said(self._version, ["container runtime is down"], {})
        self._version = f"{version.runtime_name}://{version.runtime_version}"
        problems = policy.runtime_problems(
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in status.status.conditions
        )
        named = (((*image.repo_digests, *image.repo_tags), image.size) for image in listed)
        extra: Object = {"images": policy.images(named, self._max_images)}
        handlers = [
            {
                "name": one.name,
                "features": {
                    "recursiveReadOnlyMounts": one.features.recursive_read_only_mounts,
                    "userNamespaces": one.features.user_namespaces,
                },
            }
            for one in status.runtime_handlers
        ]
        if handlers:
            extra["runtimeHandlers"] = handlers
        if status.HasField("features"):
            extra["features"] = {"supplementalGroupsPolicy": status.features.supplemental_groups_policy}
        return Said(self._version, problems, extra)

    async def give_pod_cidr(self, cidr: str) -> None:
        """Tell it where pods' addresses are, once for each range and each life of a runtime."""
        if not cidr or cidr == self._pod_cidr:
            return
        try:
            await self._cri.update_runtime_config(cidr)
        except CriError as error:
            log.warning("cannot tell the runtime the pods' addresses %s: %s; tried again", cidr, error)
            return
        log.info("pods' addresses are in %s", cidr)
        self._pod_cidr = cidr
