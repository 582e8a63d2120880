"""Messages the container_gc actor receives."""

from __future__ import annotations

from proto.wire.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """What a collection removed."""

    containers: int
    sandboxes: int
    directories: int


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """Collect now. A repeat is harmless."""

    all_dead: bool = False
    """Also everything of pods that have ended though they are still wanted (eviction's reclaim step, the kubelet's
    DeleteAllUnusedContainers). Of pods that go on, the last dead container of each name stays as ever: its exit code
    and restart count are in no other place."""


class PodTerminated(Message, frozen=True, kw_only=True):
    """From pod_workers: nothing of this pod runs any more and no source wants it: its log and pod directories and dead
    containers may go without waiting for the next period. Idempotent."""

    pod_uid: str
    pod_namespace: str
    pod_name: str
