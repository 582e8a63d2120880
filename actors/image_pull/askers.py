"""The requests for images that are being served, by pod. Those of a pod that ends are withdrawn.

A withdrawn request is refused. Its asker, a pod worker, waits for it no more.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

from actors._base import Future
from actors._cri.image_reference import Reference
from proto.node.image_pull import EnsureImage, ImageEnsured
from proto.wire.errors import Refused


@dataclass(slots=True, eq=False)
class Asked:
    """A request for an image."""

    request: EnsureImage
    ref: Reference
    gone: Future[None] = field(default_factory=Future)
    """Complete once the request is withdrawn."""

    @property
    def is_withdrawn(self) -> bool:
        """True once its pod has begun to end."""
        return self.gone.done()

    def withdrawn(self) -> Refused:
        """The answer to a withdrawn request."""
        return Refused("Canceled", f'The pull of image "{self.request.image}" is withdrawn: its pod ends')

    def require_wanted(self) -> None:
        """Raise Refused if the request is withdrawn."""
        if self.is_withdrawn:
            raise self.withdrawn()


class Askers:
    """Requests that are being served. In the actor's thread."""

    def __init__(self) -> None:
        self._asked: dict[str, set[Asked]] = {}
        """By the pod's UID."""

    async def serve(self, asked: Asked, work: Coroutine[Any, None, ImageEnsured]) -> ImageEnsured:
        """The result of `work`. Until it ends the request can be withdrawn."""
        uid = asked.request.pod_uid
        self._asked.setdefault(uid, set()).add(asked)
        try:
            return await work
        finally:
            self._asked[uid].discard(asked)
            if not self._asked[uid]:
                del self._asked[uid]

    def drop(self, pod_uid: str) -> None:
        """Withdraw the requests of a pod."""
        for asked in tuple(self._asked.get(pod_uid, ())):
            asked.gone.set(None)

    def keep(self, pod_uids: Collection[str]) -> None:
        """Withdraw the requests of all other pods."""
        for uid in self._asked.keys() - set(pod_uids):
            self.drop(uid)
