"""The container runtime's part of the Node's status, and the pod CIDR that the runtime is given."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from actors._base import gather
from actors._cri import conditions
from actors._cri.errors import CriError
from actors._cri.relay import RelayedCri
from actors.node import policy
from actors.node.policy import Object
from proto.agent.settings import Settings

log = logging.getLogger(__name__)


PATIENCE_S = 30.0
"""A runtime that does not answer for less keeps its last state: it may just be restarting. As in the kubelet."""
NEVER_SEEN = ("container runtime status check may not have completed yet", "network state unknown")


class RuntimeStatus(NamedTuple):
    """The runtime's answers for the Node's status."""

    version: str
    """Such as `containerd://1.6.20`; empty while the runtime has never answered."""
    problems: list[str]
    """Reasons of the runtime's for which the node is not ready."""
    status: Object
    """Fields of the status: images, runtimeHandlers, features."""


class NodeRuntime:
    """State: the last known version of the runtime."""

    def __init__(self, cri: RelayedCri, settings: Settings) -> None:
        self._cri = cri
        self._max_images = settings.node_status_max_images
        self.patience_s = min(PATIENCE_S, 3 * settings.node_status_update_frequency_s)
        self._last: tuple[float, RuntimeStatus] | None = None
        self._version = ""
        self.pod_cidr = ""
        """The address ranges that the present runtime has from us."""

    async def read(self) -> RuntimeStatus:
        """Call Version, Status and ListImages. A runtime that does not answer is a problem of the status, no error."""
        try:
            # At once: users wait for a new node, and each answer takes long on a machine that starts.
            version, status, listed = await gather(self._cri.version(), self._cri.status(), self._cri.list_images())
        except CriError as error:
            log.debug("the runtime does not answer: %s", error)
            self.pod_cidr = ""  # the next runtime needs it again
            if self._last is None:
                return RuntimeStatus("", list(NEVER_SEEN), {})
            since, last = self._last
            if time.monotonic() - since < self.patience_s:
                return last
            return RuntimeStatus(self._version, ["container runtime is down"], {})
        self._version = f"{version.runtime_name}://{version.runtime_version}"
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
        answer = RuntimeStatus(self._version, conditions.problems(status), extra)
        self._last = (time.monotonic(), answer)
        return answer

    async def notice_restart(self) -> None:
        """Forget the pod CIDR while the runtime does not answer: the next one needs it again."""
        try:
            await self._cri.version()
        except CriError:
            self.pod_cidr = ""

    async def give_pod_cidr(self, cidr: str) -> None:
        """Send the pods' address range to the runtime (rpc UpdateRuntimeConfig), once for each range and runtime."""
        if not cidr or cidr == self.pod_cidr:
            return
        try:
            await self._cri.update_runtime_config(cidr)
        except CriError as error:
            log.warning("cannot give the runtime the pod CIDR %s: %s; tried again", cidr, error)
            return
        log.info("the runtime has the pod CIDR %s", cidr)
        self.pod_cidr = cidr
