"""Volume plugins: what each source of a pod's volume needs set up. Pure; one module each.

A plugin turns a volume of a pod into a step for a helper, from the pod, the objects it names and facts of the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from actors._host.downward import NodeFacts
from actors.volume.steps import SetUp
from proto.objects import ApiObject, ObjectRef
from proto.v1 import Pod, Volume


class CannotMount(Exception):
    """A volume cannot be set up as things stand; the message is the kubelet's. `retry`: it may be possible later."""

    def __init__(self, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.retry = retry


@dataclass(frozen=True)
class Context:
    """What a plugin may look at besides the pod."""

    allocatable_bytes: int = 0
    """The node's memory for pods."""
    facts: NodeFacts = field(default_factory=NodeFacts)
    objects: Mapping[ObjectRef, ApiObject] = field(default_factory=dict)
    """Those of `Plugin.refs` that there are."""

    def with_objects(self, objects: Mapping[ObjectRef, ApiObject]) -> Context:
        """The same node, with these."""
        return replace(self, objects=objects)


class Plugin(ABC):
    """One source of volumes. A plugin that needs more than files and mounts has its own steps for it in steps.py."""

    source: ClassVar[str]
    """The attribute of `v1.Volume` that selects it."""
    directory: ClassVar[str] = ""
    """Its name below a pod's `volumes`; empty when its volumes are elsewhere."""
    refreshes: ClassVar[bool] = False
    """Whether what it sets up changes while the pod runs (the kubelet's RequiresRemount)."""

    def refs(self, pod: Pod, volume: Volume) -> tuple[ObjectRef, ...]:  # noqa: ARG002 - for those that have some
        """The objects the volume is made of."""
        return ()

    @abstractmethod
    def step(self, pod: Pod, volume: Volume, context: Context) -> SetUp:
        """What sets the volume up. Raises CannotMount."""


def fs_group(pod: Pod) -> int | None:
    """The group the pod's volumes belong to."""
    security = pod.spec.security_context
    return security.fs_group if security is not None else None
