"""The container runtime's part of the Node's status, and the pod CIDR that the runtime is given."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable
from typing import NamedTuple

from actors._base import gather
from actors._cri import conditions
from actors._cri.errors import CriError, Unimplemented
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
    """State: the last known version of the runtime, and if its cgroup driver is known to be ours."""

    def __init__(self, cri: RelayedCri, settings: Settings) -> None:
        self._cri = cri
        self._max_images = settings.node_status_max_images
        self.patience_s = min(PATIENCE_S, 3 * settings.node_status_update_frequency_s)
        self._last: tuple[float, RuntimeStatus] | None = None
        self._version = ""
        self.users_on_host_network = False
        """By its last answer, the runtime gives pods on the host's network a user namespace."""
        self._driver = settings.cgroup_driver
        self._driver_agreed = False
        self.pod_cidr = ""
        """The address ranges that the present runtime has from us."""

    async def read(self) -> RuntimeStatus:
        """Call Version, Status and ListImages. A runtime that does not answer is a problem of the status, no error."""
        driver = None if self._driver_agreed else self._cri.cgroup_driver()
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
        self.users_on_host_network = status.features.user_namespaces_host_network
        self._version = f"{version.runtime_name}://{version.runtime_version}"
        images = (policy.ImageFacts(one.size, one.id, (*one.repo_digests, *one.repo_tags)) for one in listed)
        extra: Object = {"images": policy.images(images, self._max_images)}
        handlers = [
            {
                "name": one.name,
                "features": {
                    "recursiveReadOnlyMounts": one.features.recursive_read_only_mounts,
                    "userNamespaces": one.features.user_namespaces,
                },
            }
            # CRI-O and containerd 2.1 list them in another order each time, and each order would be a change.
            for one in sorted(status.runtime_handlers, key=lambda one: one.name)
        ]
        if handlers:
            extra["runtimeHandlers"] = handlers
        if status.HasField("features"):
            extra["features"] = {"supplementalGroupsPolicy": status.features.supplemental_groups_policy}
        unlike = "" if driver is None else await self._driver_problem(driver)
        answer = RuntimeStatus(self._version, [*conditions.problems(status), *([unlike] if unlike else [])], extra)
        self._last = (time.monotonic(), answer)
        return answer

    async def _driver_problem(self, asked: Awaitable[str]) -> str:
        """The reason why pod_workers starts no pod by the runtime's cgroup driver; empty once it has agreed."""
        try:
            driver = await asked
        except Unimplemented:
            driver = ""  # such as containerd 1.x: the configured one counts
        except CriError as error:
            return f"container runtime does not tell its cgroup driver, so no pod starts: {error}"
        self._driver_agreed = driver in ("", self._driver)
        if self._driver_agreed:
            return ""
        return f"cgroup driver of the container runtime is {driver}, of the agent {self._driver}: start the agent again"

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
            log.warning("cannot give the runtime the pod CIDR %s: %s; trying again", cidr, error)
            return
        log.info("the runtime has the pod CIDR %s", cidr)
        self.pod_cidr = cidr
