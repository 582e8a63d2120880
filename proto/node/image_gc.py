"""Messages that the image_gc actor receives: requests to remove unused images."""

from __future__ import annotations

from proto.node.eviction import PlannedVictim
from proto.wire.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """The result of a collection."""

    freed_bytes: int
    removed: tuple[str, ...] = ()
    """Image IDs; as ID,HANDLER where images of other runtime handlers are other images."""


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """From the command line: collect by the thresholds, as the periodic run does. A repeat is harmless."""


class DeleteUnusedImages(Request[Collected], frozen=True, kw_only=True):
    """From eviction's reclaim step: remove every image that no container uses. A repeat is harmless.

    As in the kubelet, an image below the minimum age stays, because its container may be about to start.
    """


class Plan(Message, frozen=True, kw_only=True):
    """The objects that would go now, in order."""

    victims: tuple[PlannedVictim, ...]
    notes: tuple[str, ...] = ()
    """Lines for people."""


class PlanCollection(Request[Plan], frozen=True, kw_only=True):
    """From the command line: the images that CollectGarbage would remove if sizes were true. Removes nothing.

    Refused: as CollectGarbage.
    """

    available_bytes: int | None = None
    """Suppose so much space on the image file system; None: as it is."""
