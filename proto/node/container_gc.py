"""Messages that the container_gc actor receives: requests to collect dead containers and directories of pods."""

from __future__ import annotations

from proto.node.eviction import PlannedVictim
from proto.wire.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """Numbers of removed containers, sandboxes and directories."""

    containers: int
    sandboxes: int
    directories: int


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """From eviction and the command line: collect now. A repeat is harmless."""

    all_dead: bool = False
    """Also remove all dead containers of ended pods that are still wanted.

    It is eviction's reclaim step, the kubelet's DeleteAllUnusedContainers. A running pod keeps the last dead container
    of each name, because its exit code and restart count are stored in no other place.
    """


class PodTerminated(Message, frozen=True, kw_only=True):
    """From pod_workers: the pod has ended and no source wants it. Idempotent.

    Its cgroup and directory can be removed before the next period. Its logs stay until then.
    """

    pod_uid: str
    pod_namespace: str
    pod_name: str


class Plan(Message, frozen=True, kw_only=True):
    """The objects that would go now, in order."""

    victims: tuple[PlannedVictim, ...]
    notes: tuple[str, ...] = ()
    """Lines for people."""


class PlanCollection(Request[Plan], frozen=True, kw_only=True):
    """From the command line: list the removals of a CollectGarbage. Removes nothing. Refused: as CollectGarbage."""
