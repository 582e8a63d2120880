"""Messages the image_gc actor receives."""

from __future__ import annotations

from proto.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """What a collection did."""

    freed_bytes: int
    removed: tuple[str, ...] = ()
    """Image IDs."""


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """Collect by the thresholds now, as the periodic run does. A repeat is harmless."""


class DeleteUnusedImages(Request[Collected], frozen=True, kw_only=True):
    """Remove every image no container uses, whatever its age (eviction's reclaim step). A repeat is harmless."""
