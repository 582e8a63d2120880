"""Tells which pods the resources actor assigns something to, so that no other pod waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from actors._cgroup.quantities.qos import qos_class
from proto.agent.settings import Settings
from proto.pods.pod_workers import ResourcesState, SetResourceHealth
from proto.resources.grants import Grant
from proto.v1 import Pod
from proto.v1.status import ResourceStatus, claimed_resources


class ManagedResources:
    """The settings, and what the resources actor told last. Workers' threads read it; `state` is replaced whole."""

    def __init__(self, settings: Settings) -> None:
        self.state: ResourcesState | None = None
        """None until the actor has told it: then every extended resource may be a device plugin's."""
        self.static_cpus = settings.cpu_manager_policy == "static"
        self._guaranteed = self.static_cpus or settings.memory_manager_policy == "Static"

    def concerns(self, pod: Pod) -> bool:
        """True when the pod may get something of its own: the resources actor is asked at its admission."""
        if self.is_pinned(pod):
            return True
        wanted = _extended_resources(pod)
        return bool(wanted) and (self.state is None or not wanted.isdisjoint(self.state.device_resources))

    def is_pinned(self, pod: Pod) -> bool:
        """True when the pod may get CPUs or memory of its own."""
        return self._guaranteed and qos_class(pod) == "Guaranteed"

    def assigns(self) -> bool:
        """True when a pod of the node may hold something."""
        return self._guaranteed or self.state is None or bool(self.state.device_resources) or self.state.has_claims

    def tracks(self, pod: Pod) -> bool:
        """True when the resources actor has to know the pod while it runs."""
        return self.static_cpus or has_claims(pod) or self.concerns(pod)

    def shared(self) -> Grant:
        """The grant of a container for which the actor is not asked. The actor corrects CPUs that changed since."""
        return Grant(cpus=self.state.shared_cpus) if self.state is not None else Grant()


def has_claims(pod: Pod) -> bool:
    """True when DRA drivers have to prepare something for the pod."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _extended_resources(pod: Pod) -> set[str]:
    """Names of resources with a domain that is not Kubernetes' own, such as vendor.com/gpu. A claim may give others."""
    names: set[str] = set()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        wanted = container.resources.limits.keys() | container.resources.requests.keys()
        names |= wanted - claimed_resources(pod.status, container.name)
    return {name for name in names if "/" in name and not name.startswith("kubernetes.io/")}


ByContainer = Mapping[str, tuple[ResourceStatus, ...]]


class ResourceHealths:
    """Workers' threads read it; the actor replaces the state whole."""

    def __init__(self) -> None:
        self._pods: dict[str, ByContainer] | None = None
        """By UID; None until everything was told."""

    def of_pod(self, uid: str) -> ByContainer | None:
        """By container; None while it is not known."""
        pods = self._pods
        return None if pods is None else pods.get(uid, {})

    def apply(self, message: SetResourceHealth) -> set[str]:
        """Take a message in. Returns the UIDs of pods whose health differs now."""
        if self._pods is None and not message.full:
            return set()
        before = self._pods or {}
        told = {one.pod_uid: one.containers for one in message.pods}
        after = {uid: one for uid, one in (told if message.full else before | told).items() if one}
        self._pods = after
        return {uid for uid in before.keys() | after.keys() if before.get(uid, {}) != after.get(uid, {})}
