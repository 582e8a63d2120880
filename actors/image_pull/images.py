"""Looks for images in the runtime. Concurrent requests share one ImageStatus call.

A found image counts as present for PRESENT_FOR_S (`policy.py`). Runs in the actor's mailbox thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from actors._base import Actor, Task
from actors._cri.call import Call
from actors._cri.errors import CriError
from actors._cri.image_reference import Reference
from actors._cri.relay import RelayedCri, RelayLost
from actors.image_pull import policy
from actors.image_pull.policy import Present
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ExpectImages

T = TypeVar("T")


class Variant(NamedTuple):
    """An image as the runtime may tell it apart."""

    image: str
    """Name for the runtime."""
    annotations: tuple[tuple[str, str], ...] = ()
    """The pod's annotations by which a runtime chooses how to pull."""
    runtime_handler: str = ""
    """The pod's runtime handler, with the feature gate RuntimeClassInImageCriApi."""

    def spec(self, annotations: Mapping[str, str]) -> pb.ImageSpec:
        """The ImageSpec of a call, with all annotations of the pod."""
        return pb.ImageSpec(image=self.image, annotations=annotations, runtime_handler=self.runtime_handler)


class Failed(NamedTuple):
    """The answer to a request that failed."""

    reason: str
    message: str


class IncompleteImage(CriError):
    """The runtime describes an image without its ID or size. Neither that it is present nor its absence is certain."""

    def __init__(self, message: str) -> None:
        super().__init__("", message)

    def grpc_text(self) -> str:
        """The text alone: the kubelet, too, finds this itself."""
        return self.details


def variant_of(request: EnsureImage | ExpectImages, ref: Reference) -> Variant:
    """The image of a request, with the annotations of its pod that matter."""
    return Variant(ref.image, policy.choosing(request.annotations), request.runtime_handler)


async def relayed(call: Callable[..., Call[T]], *args: Any) -> T:
    """The result of a call through pleg. It is repeated once if pleg died meanwhile, so that no pull fails of that."""
    try:
        return await call(*args)
    except RelayLost:
        return await call(*args)


class Images:
    """Images of the runtime that were looked for."""

    def __init__(self, actor: Actor, cri: RelayedCri) -> None:
        self._actor, self._cri = actor, cri
        self._presence: policy.Presence[Variant] = policy.Presence()
        self._looks: dict[Variant, Task[Present | Failed | None]] = {}
        self.calls = 0
        """Number of ImageStatus calls."""

    @property
    def looked_for(self) -> list[str]:
        """Images that the runtime is being asked for."""
        return [variant.image for variant in self._looks]

    def seen(self, variant: Variant) -> Present | None:
        """The image, if it was found a moment ago."""
        return self._presence.get(variant, time.monotonic())

    def look(self, variant: Variant, annotations: Mapping[str, str]) -> Task[Present | Failed | None]:
        """The running look for an image; starts one if there is none. None: the image is not there."""
        if variant not in self._looks:
            self._looks[variant] = self._actor.spawn(self._look(variant, annotations), "inspect")
        return self._looks[variant]

    async def _look(self, variant: Variant, annotations: Mapping[str, str]) -> Present | Failed | None:
        try:
            return await self.status(variant, variant.spec(annotations))
        except CriError as error:
            return Failed("ImageInspectError", policy.inspect_message(variant.image, error.grpc_text()))
        finally:
            del self._looks[variant]

    async def status(self, variant: Variant, spec: pb.ImageSpec) -> Present | None:
        """Ask the runtime for an image by `spec`, and remember it as `variant`. Raises CriError."""
        self.calls += 1
        status = await relayed(self._cri.image_status, spec)
        if status is None:
            return None
        if not status.id or not status.size:
            raise IncompleteImage(policy.without_size(spec.image))
        user = policy.image_user(status.uid.value if status.HasField("uid") else None, status.username)
        found = Present(status.id, user, status.size)
        self._presence.put(variant, found, time.monotonic())
        return found
