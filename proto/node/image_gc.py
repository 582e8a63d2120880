"""Messages the image_gc actor receives."""

from __future__ import annotations

from proto.wire.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """What a collection did."""

    freed_bytes: int
    removed: tuple[str, ...] = ()
    """Image IDs."""


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """Collect by the thresholds now, as the periodic run does. A repeat is harmless."""


class DeleteUnusedImages(Request[Collected], frozen=True, kw_only=True):
    """Remove every image no container uses, however empty the disk (eviction's reclaim step). A repeat is harmless.

    As in the kubelet, one younger than the minimum age stays: it was pulled for a container that is about to start.
    """
