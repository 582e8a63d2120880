"""Messages that the image_gc actor receives: requests to remove unused images."""

from __future__ import annotations

from proto.wire.message import Message, Request


class Collected(Message, frozen=True, kw_only=True):
    """The result of a collection."""

    freed_bytes: int
    removed: tuple[str, ...] = ()
    """Image IDs."""


class CollectGarbage(Request[Collected], frozen=True, kw_only=True):
    """From the command line: collect by the thresholds, as the periodic run does. A repeat is harmless."""


class DeleteUnusedImages(Request[Collected], frozen=True, kw_only=True):
    """From eviction's reclaim step: remove every image that no container uses. A repeat is harmless.

    As in the kubelet, an image below the minimum age stays, because its container may be about to start.
    """
